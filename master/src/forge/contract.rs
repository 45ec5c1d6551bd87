//! What each forge must do, whatever it is made of.
//!
//! Each function is one rule, stated over the port and a [`World`] in which a test can act as a person and
//! as a worker. [`contract_tests`] makes a test of each for one kind of world.

pub(super) mod methods;

use async_trait::async_trait;

use crate::{
    domain::{ids::CommitId, policy::MergeMethod, workflow::Kind},
    forge::{
        Error, Forge, Item, MergeOutcome, MoveOutcome, OpenOutcome, WantedMerge, WantedPullRequest,
    },
    store::model::Repository,
};

/// Files of a commit, by path.
pub(super) type Files<'a> = &'a [(&'a str, &'a str)];

/// A forge under test, with one repository whose base branch has one commit.
#[async_trait]
pub(super) trait World: Send + Sync {
    fn forge(&self) -> &dyn Forge;
    fn repository(&self) -> &Repository;
    /// Makes a commit and pushes it to a ref of its own, on no branch, as a worker does. Adds `files` to
    /// those of the first parent.
    async fn commit(&self, parents: &[&CommitId], files: Files<'_>) -> CommitId;
    /// Puts a branch at a commit, or removes it, by force: as a person.
    async fn put(&self, branch: &str, commit: Option<&CommitId>);
    /// Where a branch is.
    async fn tip(&self, branch: &str) -> Option<CommitId>;
    /// Parents of a commit on a branch.
    async fn parents(&self, commit: &CommitId) -> Vec<CommitId>;
    /// Text of a file in a commit.
    async fn file(&self, commit: &CommitId, path: &str) -> String;
    /// Opens an issue with the opt-in label.
    async fn issue(&self) -> u64;
    /// Takes the opt-in label off.
    async fn unlabel(&self, number: u64);
    /// Closes an item, as a person.
    async fn close(&self, number: u64);
}

/// Makes a test of each rule.
macro_rules! contract_tests {
    ($world:expr; $( $rule:ident, )+) => {$(
        #[tokio::test]
        async fn $rule() {
            let world = $world.await;
            $crate::forge::contract::$rule(&world).await;
        }
    )+};
}

/// Makes a test of each rule that holds for every merge method.
macro_rules! method_tests {
    ($world:expr; $( $rule:ident, )+) => {$(
        #[tokio::test]
        async fn $rule() {
            for method in crate::domain::policy::MergeMethod::ALL {
                let world = $world.await;
                $crate::forge::contract::methods::$rule(&world, *method).await;
            }
        }
    )+};
}

/// All rules, for [`contract_tests`].
macro_rules! contract {
    ($world:expr) => {
        $crate::forge::contract::contract_tests! { $world;
            a_branch_is_moved_forward,
            a_branch_that_has_the_commit_is_done,
            a_branch_that_a_person_moved_is_respected,
            a_branch_is_never_moved_sideways,
            a_branch_that_is_gone_is_waited_for,
            a_commit_that_nobody_pushed_is_refused,
            names_that_no_branch_can_have_are_refused,
            a_branch_is_read_by_its_whole_name,
            a_pull_request_is_opened_once,
            an_existing_branch_is_used_as_it_is_or_forwarded,
            an_unrelated_branch_gets_no_pull_request,
            a_missing_label_is_added,
            a_closed_pull_request_is_not_opened_again_but_followed_by_another,
            labelled_items_are_the_open_ones_with_the_label,
            a_merge_has_both_parents_and_closes_the_pull_request,
            a_repeated_merge_finds_the_first_one,
            merges_at_the_same_time_are_one,
            a_moved_head_is_not_merged,
            conflicts_are_listed_by_path,
            a_merge_without_its_branches_does_nothing,
            a_merge_by_hand_counts,
            a_fast_forward_by_hand_counts_once_it_is_to_be_merged,
            a_branch_without_commits_is_not_merged,
            a_closed_pull_request_is_not_merged,
            unrelated_history_is_not_merged,
            a_pull_request_is_merged_under_its_own_name_alone,
            a_squash_by_hand_is_not_credited,
            a_text_that_names_the_pull_request_is_not_credited,
            a_fast_forward_takes_a_base_that_moved_into_the_head_first,
            a_deleted_branch_is_not_made_again_by_a_late_move,
            a_branch_that_was_moved_back_is_respected,
            a_branch_that_was_made_anew_is_respected,
        }
        $crate::forge::contract::method_tests! { $world;
            each_method_brings_the_work_onto_the_base_branch,
            each_method_finds_its_first_merge_again,
            each_method_merges_once_at_the_same_time,
            no_method_merges_a_moved_head,
            no_method_merges_a_conflict,
            no_method_merges_what_is_closed,
            no_method_merges_again_what_was_taken_back,
        }
    };
}

pub(super) use {contract, contract_tests, method_tests};

/// A name with slashes, as our own are.
const HEAD: &str = "pointsman/some/work";

fn wanted(world: &dyn World, commit: &CommitId) -> WantedPullRequest {
    WantedPullRequest {
        head_ref: HEAD.to_owned(),
        base_ref: world.repository().base_ref.clone(),
        commit: commit.clone(),
        title: "Some work".to_owned(),
        body: "It was needed.".to_owned(),
        label: world.repository().label.clone(),
    }
}

/// Tip of the base branch.
pub(super) async fn base(world: &dyn World) -> CommitId {
    world.tip(&world.repository().base_ref).await.unwrap()
}

/// Opens the pull request that must be possible to open.
pub(super) async fn open(world: &dyn World, commit: &CommitId) -> Item {
    let outcome = world
        .forge()
        .open_pull_request(world.repository(), &wanted(world, commit))
        .await
        .unwrap();
    match outcome {
        OpenOutcome::Done { item } => item,
        other => panic!("{other:?}"),
    }
}

/// A pull request with one commit on top of the base branch.
pub(super) async fn opened(world: &dyn World) -> WantedMerge {
    let head = world
        .commit(&[&base(world).await], &[("work", "done")])
        .await;
    let item = open(world, &head).await;
    WantedMerge {
        number: item.number,
        head_ref: HEAD.to_owned(),
        base_ref: item.base_ref,
        head,
        title: item.title,
        method: MergeMethod::Merge,
    }
}

/// As [`opened`], to be merged so.
async fn opened_for(world: &dyn World, method: MergeMethod) -> WantedMerge {
    WantedMerge {
        method,
        ..opened(world).await
    }
}

pub(super) async fn merge(world: &dyn World, wanted: &WantedMerge) -> MergeOutcome {
    let forge = world.forge();
    forge.merge(world.repository(), wanted).await.unwrap()
}

pub(super) async fn merged(world: &dyn World, wanted: &WantedMerge) -> CommitId {
    match merge(world, wanted).await {
        MergeOutcome::Done { commit } => commit,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn item(world: &dyn World, number: u64) -> Item {
    let forge = world.forge();
    forge
        .item(world.repository(), number)
        .await
        .unwrap()
        .unwrap()
}

async fn labelled(world: &dyn World) -> Vec<u64> {
    let items = world.forge().labelled_items(world.repository()).await;
    items.unwrap().into_iter().map(|item| item.number).collect()
}

async fn check_moved(
    world: &dyn World,
    from: &CommitId,
    to: &CommitId,
    expected: MoveOutcome,
    tip: Option<&CommitId>,
) {
    for _ in 0..2 {
        let outcome = world
            .forge()
            .move_branch(world.repository(), HEAD, from, to);
        assert_eq!(outcome.await.unwrap(), expected);
        assert_eq!(world.tip(HEAD).await.as_ref(), tip);
    }
}

pub(super) async fn a_branch_is_moved_forward(world: &dyn World) {
    let from = base(world).await;
    world.put(HEAD, Some(&from)).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    check_moved(
        world,
        &from,
        &to,
        MoveOutcome::Done { head: to.clone() },
        Some(&to),
    )
    .await;
}

pub(super) async fn a_branch_that_has_the_commit_is_done(world: &dyn World) {
    let from = base(world).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    let later = world.commit(&[&to], &[("a", "2")]).await;
    world.put(HEAD, Some(&later)).await;
    let done = MoveOutcome::Done {
        head: later.clone(),
    };
    check_moved(world, &from, &to, done, Some(&later)).await;
}

pub(super) async fn a_branch_that_a_person_moved_is_respected(world: &dyn World) {
    let from = base(world).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    let theirs = world.commit(&[&from], &[("a", "2")]).await;
    world.put(HEAD, Some(&theirs)).await;
    let superseded = MoveOutcome::Superseded {
        head: theirs.clone(),
    };
    check_moved(world, &from, &to, superseded, Some(&theirs)).await;
}

pub(super) async fn a_branch_is_never_moved_sideways(world: &dyn World) {
    let base = base(world).await;
    let from = world.commit(&[&base], &[("a", "1")]).await;
    let aside = world.commit(&[&base], &[("a", "2")]).await;
    world.put(HEAD, Some(&from)).await;
    let outcome = world
        .forge()
        .move_branch(world.repository(), HEAD, &from, &aside);
    assert!(matches!(outcome.await, Err(Error::Refused { .. })));
    // Back is where it is already.
    check_moved(
        world,
        &from,
        &base,
        MoveOutcome::Done { head: from.clone() },
        Some(&from),
    )
    .await;
}

pub(super) async fn a_branch_that_is_gone_is_waited_for(world: &dyn World) {
    let from = base(world).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    let outcome = world
        .forge()
        .move_branch(world.repository(), HEAD, &from, &to);
    assert!(matches!(
        outcome.await.unwrap(),
        MoveOutcome::Waiting { .. }
    ));
    assert_eq!(world.tip(HEAD).await, None);
}

pub(super) async fn a_commit_that_nobody_pushed_is_refused(world: &dyn World) {
    let from = base(world).await;
    world.put(HEAD, Some(&from)).await;
    let nowhere: CommitId = "0123456789012345678901234567890123456789".parse().unwrap();
    let outcome = world
        .forge()
        .move_branch(world.repository(), HEAD, &from, &nowhere);
    assert!(matches!(outcome.await, Err(Error::Refused { .. })));
    let outcome = world
        .forge()
        .conflicts(world.repository(), &nowhere, "main");
    assert!(matches!(outcome.await, Err(Error::Refused { .. })));
}

pub(super) async fn names_that_no_branch_can_have_are_refused(world: &dyn World) {
    let from = base(world).await;
    for name in ["", "a:b", "a b", "a..b", "a/", "*", "a.lock"] {
        let outcome = world.forge().branch(world.repository(), name).await;
        assert!(matches!(outcome, Err(Error::Refused { .. })), "{name:?}");
        let outcome = world
            .forge()
            .move_branch(world.repository(), name, &from, &from);
        assert!(
            matches!(outcome.await, Err(Error::Refused { .. })),
            "{name:?}"
        );
    }
}

pub(super) async fn a_branch_is_read_by_its_whole_name(world: &dyn World) {
    let base = base(world).await;
    let commit = world.commit(&[&base], &[("a", "1")]).await;
    world.put(HEAD, Some(&commit)).await;
    world.put("x/refs/heads/work", Some(&commit)).await;
    let (forge, repository) = (world.forge(), world.repository());
    assert_eq!(forge.branch(repository, HEAD).await.unwrap(), Some(commit));
    assert_eq!(forge.branch(repository, "main").await.unwrap(), Some(base));
    assert_eq!(forge.branch(repository, "work").await.unwrap(), None);
    assert_eq!(
        forge.branch(repository, "pointsman/some").await.unwrap(),
        None
    );
}

pub(super) async fn a_pull_request_is_opened_once(world: &dyn World) {
    let commit = world.commit(&[&base(world).await], &[("a", "1")]).await;
    let first = open(world, &commit).await;
    assert_eq!(first.kind, Kind::PullRequest);
    assert!(first.is_open);
    assert_eq!(first.head_ref.as_deref(), Some(HEAD));
    assert_eq!(first.head.as_ref(), Some(&commit));
    assert_eq!(first.labels, [world.repository().label.clone()]);
    assert_eq!(world.tip(HEAD).await.as_ref(), Some(&commit));
    assert_eq!(open(world, &commit).await, first);
    assert_eq!(item(world, first.number).await, first);
    assert_eq!(labelled(world).await, [first.number]);
}

pub(super) async fn an_existing_branch_is_used_as_it_is_or_forwarded(world: &dyn World) {
    let base = base(world).await;
    let earlier = world.commit(&[&base], &[("a", "1")]).await;
    let later = world.commit(&[&earlier], &[("a", "2")]).await;
    world.put(HEAD, Some(&earlier)).await;
    assert_eq!(open(world, &later).await.head.as_ref(), Some(&later));
    assert_eq!(open(world, &earlier).await.head.as_ref(), Some(&later));
    assert_eq!(world.tip(HEAD).await, Some(later));
}

pub(super) async fn an_unrelated_branch_gets_no_pull_request(world: &dyn World) {
    let base = base(world).await;
    let ours = world.commit(&[&base], &[("a", "1")]).await;
    let theirs = world.commit(&[&base], &[("a", "2")]).await;
    world.put(HEAD, Some(&theirs)).await;
    let wanted = wanted(world, &ours);
    let outcome = world
        .forge()
        .open_pull_request(world.repository(), &wanted)
        .await;
    assert_eq!(
        outcome.unwrap(),
        OpenOutcome::Superseded {
            head: theirs.clone()
        }
    );
    assert_eq!(world.tip(HEAD).await, Some(theirs));
    assert!(labelled(world).await.is_empty());
}

pub(super) async fn a_missing_label_is_added(world: &dyn World) {
    let commit = world.commit(&[&base(world).await], &[("a", "1")]).await;
    let first = open(world, &commit).await;
    world.unlabel(first.number).await;
    assert!(labelled(world).await.is_empty());
    assert_eq!(open(world, &commit).await, first);
    assert_eq!(labelled(world).await, [first.number]);
}

pub(super) async fn a_closed_pull_request_is_not_opened_again_but_followed_by_another(
    world: &dyn World,
) {
    let commit = world.commit(&[&base(world).await], &[("a", "1")]).await;
    let first = open(world, &commit).await;
    world.close(first.number).await;
    let second = open(world, &commit).await;
    assert!(second.number > first.number);
    assert!(!item(world, first.number).await.is_open);
}

pub(super) async fn labelled_items_are_the_open_ones_with_the_label(world: &dyn World) {
    let [kept, closed, unlabelled] = [
        world.issue().await,
        world.issue().await,
        world.issue().await,
    ];
    world.close(closed).await;
    world.unlabel(unlabelled).await;
    let pull_request = opened(world).await;
    assert_eq!(labelled(world).await, [kept, pull_request.number]);
    let issue = item(world, kept).await;
    assert_eq!(
        (issue.kind, issue.head_ref, issue.head),
        (Kind::Issue, None, None)
    );
    let nothing = world.forge().item(world.repository(), 1000).await;
    assert_eq!(nothing.unwrap(), None);
}

pub(super) async fn a_merge_has_both_parents_and_closes_the_pull_request(world: &dyn World) {
    let wanted = opened(world).await;
    let onto = world
        .commit(&[&base(world).await], &[("else", "too")])
        .await;
    world.put("main", Some(&onto)).await;
    let commit = merged(world, &wanted).await;
    assert_eq!(base(world).await, commit);
    assert_eq!(world.parents(&commit).await, [onto, wanted.head.clone()]);
    assert_eq!(world.file(&commit, "work").await, "done");
    assert_eq!(world.file(&commit, "else").await, "too");
    let item = item(world, wanted.number).await;
    assert!(!item.is_open);
    assert_eq!(item.merged_commit, Some(commit));
    assert!(labelled(world).await.is_empty());
}

pub(super) async fn a_repeated_merge_finds_the_first_one(world: &dyn World) {
    let wanted = opened(world).await;
    let commit = merged(world, &wanted).await;
    let later = world.commit(&[&commit], &[("later", "1")]).await;
    world.put("main", Some(&later)).await;
    world.put(HEAD, None).await;
    assert_eq!(merged(world, &wanted).await, commit);
    assert_eq!(base(world).await, later);
}

pub(super) async fn merges_at_the_same_time_are_one(world: &dyn World) {
    let wanted = opened(world).await;
    let before = base(world).await;
    let (one, other) = tokio::join!(merged(world, &wanted), merged(world, &wanted));
    assert_eq!(one, other);
    assert_eq!(
        world.parents(&base(world).await).await,
        [before, wanted.head]
    );
}

pub(super) async fn a_moved_head_is_not_merged(world: &dyn World) {
    let wanted = opened(world).await;
    let before = base(world).await;
    let theirs = world.commit(&[&wanted.head], &[("more", "1")]).await;
    world.put(HEAD, Some(&theirs)).await;
    assert_eq!(
        merge(world, &wanted).await,
        MergeOutcome::HeadMoved { head: theirs }
    );
    assert_eq!(base(world).await, before);
}

pub(super) async fn conflicts_are_listed_by_path(world: &dyn World) {
    let before = base(world).await;
    let files = [("same/näme", "1"), ("b c", "1"), ("free", "1")];
    let wanted_head = world.commit(&[&before], &files).await;
    let item = open(world, &wanted_head).await;
    let onto = world
        .commit(&[&before], &[("same/näme", "2"), ("b c", "2")])
        .await;
    let paths = || {
        world
            .forge()
            .conflicts(world.repository(), &wanted_head, "main")
    };
    assert!(paths().await.unwrap().is_empty());
    world.put("main", Some(&onto)).await;
    assert_eq!(paths().await.unwrap(), ["b c", "same/näme"]);
    let wanted = WantedMerge {
        number: item.number,
        head_ref: HEAD.to_owned(),
        base_ref: "main".to_owned(),
        head: wanted_head.clone(),
        title: item.title,
        method: MergeMethod::Merge,
    };
    let MergeOutcome::Conflict { paths } = merge(world, &wanted).await else {
        panic!("it conflicts");
    };
    assert_eq!(paths, ["b c", "same/näme"]);
    assert_eq!(base(world).await, onto);
}

pub(super) async fn a_merge_without_its_branches_does_nothing(world: &dyn World) {
    let wanted = opened(world).await;
    let before = base(world).await;
    world.put(HEAD, None).await;
    assert!(matches!(
        merge(world, &wanted).await,
        MergeOutcome::Waiting { .. }
    ));
    assert_eq!(base(world).await, before);
    world.put(HEAD, Some(&wanted.head)).await;
    world.put("main", None).await;
    assert!(matches!(
        merge(world, &wanted).await,
        MergeOutcome::Refused { .. }
    ));
    assert_eq!(world.tip("main").await, None);
}

pub(super) async fn a_merge_by_hand_counts(world: &dyn World) {
    let wanted = opened(world).await;
    let side = world.commit(&[&base(world).await], &[("side", "1")]).await;
    let by_hand = world
        .commit(&[&side, &wanted.head], &[("work", "done")])
        .await;
    let later = world.commit(&[&by_hand], &[("later", "1")]).await;
    let latest = world.commit(&[&later], &[("later", "2")]).await;
    world.put("main", Some(&latest)).await;
    assert_eq!(merged(world, &wanted).await, by_hand);
    assert_eq!(base(world).await, latest);
    // Seen by a look alone, too.
    let again = world.commit(&[&wanted.head], &[("again", "1")]).await;
    let second = open(world, &again).await;
    let by_hand = world.commit(&[&latest, &again], &[("again", "1")]).await;
    world.put("main", Some(&by_hand)).await;
    assert!(labelled(world).await.is_empty());
    let seen = item(world, second.number).await;
    assert_eq!((seen.is_open, seen.merged_commit), (false, Some(by_hand)));
}

pub(super) async fn a_fast_forward_by_hand_counts_once_it_is_to_be_merged(world: &dyn World) {
    let wanted = opened(world).await;
    let later = world.commit(&[&wanted.head], &[("later", "1")]).await;
    world.put("main", Some(&later)).await;
    assert_eq!(merged(world, &wanted).await, wanted.head);
    assert_eq!(base(world).await, later);
    assert!(!item(world, wanted.number).await.is_open);
}

pub(super) async fn a_branch_without_commits_is_not_merged(world: &dyn World) {
    let item_opened = open(world, &base(world).await).await;
    assert!(item_opened.is_open);
    let later = world.commit(&[&base(world).await], &[("later", "1")]).await;
    world.put("main", Some(&later)).await;
    assert!(item(world, item_opened.number).await.is_open);
}

pub(super) async fn a_closed_pull_request_is_not_merged(world: &dyn World) {
    let wanted = opened(world).await;
    let before = base(world).await;
    world.close(wanted.number).await;
    assert!(matches!(
        merge(world, &wanted).await,
        MergeOutcome::Refused { .. }
    ));
    assert_eq!(base(world).await, before);
}

pub(super) async fn unrelated_history_is_not_merged(world: &dyn World) {
    let before = base(world).await;
    let head = world.commit(&[], &[("work", "done")]).await;
    let item = open(world, &head).await;
    let wanted = WantedMerge {
        number: item.number,
        head_ref: HEAD.to_owned(),
        base_ref: "main".to_owned(),
        head,
        title: item.title,
        method: MergeMethod::Merge,
    };
    assert!(matches!(
        merge(world, &wanted).await,
        MergeOutcome::Refused { .. }
    ));
    assert_eq!(base(world).await, before);
}

pub(super) async fn a_pull_request_is_merged_under_its_own_name_alone(world: &dyn World) {
    let wanted = opened(world).await;
    let before = base(world).await;
    let issue = world.issue().await;
    let others = [
        WantedMerge {
            number: issue,
            ..wanted.clone()
        },
        WantedMerge {
            number: 1000,
            ..wanted.clone()
        },
        WantedMerge {
            head_ref: "another".to_owned(),
            ..wanted.clone()
        },
    ];
    for other in others {
        assert!(matches!(
            merge(world, &other).await,
            MergeOutcome::Refused { .. }
        ));
    }
    assert_eq!(base(world).await, before);
}

pub(super) async fn a_squash_by_hand_is_not_credited(world: &dyn World) {
    let wanted = opened(world).await;
    let by_hand = world
        .commit(&[&base(world).await], &[("work", "done")])
        .await;
    world.put("main", Some(&by_hand)).await;
    let seen = item(world, wanted.number).await;
    assert_eq!((seen.is_open, seen.merged_commit), (true, None));
    // Its own merge changes no file, and takes nothing away.
    let commit = merged(world, &wanted).await;
    assert_eq!(world.parents(&commit).await, [by_hand, wanted.head]);
    assert_eq!(world.file(&commit, "work").await, "done");
}

/// fabrik#1614: a pull request that was told by a text in another was credited with that one's merge.
pub(super) async fn a_text_that_names_the_pull_request_is_not_credited(world: &dyn World) {
    let wanted = opened(world).await;
    let message = format!(
        "Merge pull request #{}: {}\n\nPointsman-Head: {}\n",
        wanted.number, wanted.title, wanted.head
    );
    let unrelated = world
        .commit(&[&base(world).await], &[("text", &message)])
        .await;
    world.put("main", Some(&unrelated)).await;
    let seen = item(world, wanted.number).await;
    assert_eq!((seen.is_open, seen.merged_commit), (true, None));
}

pub(super) async fn a_fast_forward_takes_a_base_that_moved_into_the_head_first(world: &dyn World) {
    let wanted = opened_for(world, MergeMethod::FastForward).await;
    let onto = world
        .commit(&[&base(world).await], &[("else", "too")])
        .await;
    world.put("main", Some(&onto)).await;
    let MergeOutcome::HeadMoved { head } = merge(world, &wanted).await else {
        panic!("the head takes the base in");
    };
    assert_eq!(base(world).await, onto, "nothing is merged yet");
    assert_eq!(world.tip(HEAD).await, Some(head.clone()));
    assert_eq!(
        world.parents(&head).await,
        [wanted.head.clone(), onto.clone()]
    );
    let again = merge(world, &wanted).await;
    assert_eq!(again, MergeOutcome::HeadMoved { head: head.clone() });
    let wanted = WantedMerge {
        head: head.clone(),
        ..wanted
    };
    assert_eq!(merged(world, &wanted).await, head);
    assert_eq!(base(world).await, head);
    assert_eq!(world.file(&head, "else").await, "too");
}

/// ai-agents#5486: a push after the merge made the deleted branch anew.
pub(super) async fn a_deleted_branch_is_not_made_again_by_a_late_move(world: &dyn World) {
    let wanted = opened(world).await;
    let late = world.commit(&[&wanted.head], &[("late", "1")]).await;
    merged(world, &wanted).await;
    world.put(HEAD, None).await;
    let outcome = world
        .forge()
        .move_branch(world.repository(), HEAD, &wanted.head, &late)
        .await;
    assert!(
        matches!(outcome, Ok(MoveOutcome::Waiting { .. })),
        "{outcome:?}"
    );
    assert_eq!(world.tip(HEAD).await, None);
    let seen = item(world, wanted.number).await;
    assert_eq!((seen.is_open, seen.head), (false, None));
}

pub(super) async fn a_branch_that_was_moved_back_is_respected(world: &dyn World) {
    let start = base(world).await;
    let from = world.commit(&[&start], &[("a", "1")]).await;
    let to = world.commit(&[&from], &[("a", "2")]).await;
    world.put(HEAD, Some(&start)).await;
    let superseded = MoveOutcome::Superseded {
        head: start.clone(),
    };
    check_moved(world, &from, &to, superseded, Some(&start)).await;
}

pub(super) async fn a_branch_that_was_made_anew_is_respected(world: &dyn World) {
    let wanted = opened(world).await;
    let before = base(world).await;
    world.put(HEAD, None).await;
    let theirs = world.commit(&[&before], &[("theirs", "1")]).await;
    world.put(HEAD, Some(&theirs)).await;
    let outcome = merge(world, &wanted).await;
    assert_eq!(outcome, MergeOutcome::HeadMoved { head: theirs });
    assert_eq!(base(world).await, before);
}
