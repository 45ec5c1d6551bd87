//! The contract on a real git remote, and what is the built-in forge's alone: proofs, hooks, lost answers,
//! working copies, checks.

mod servers;
mod working_copies;
mod world;

use std::time::Duration;

use super::push::{Expected, Pushed, Update, push};
use crate::{
    clock::{Stopwatch, SystemStopwatch},
    domain::{
        ci::Conclusion,
        ids::{CheckId, CommitId, WorkflowId},
        policy::{MergeMethod, Policy},
        workflow::{Identity, Kind, Workflow},
    },
    forge::{
        Error, Forge, MergeOutcome, MoveOutcome, OpenOutcome, WantedMerge, WantedPullRequest,
        contract::{self, World, base, item, merge, merged, opened},
    },
    store::model::CheckRun,
};
use uuid::Uuid;
use world::{BuiltinWorld, NOW};

contract::contract!(BuiltinWorld::new());

/// A deadline for what must become true.
const SOON: Duration = Duration::from_secs(30);
const HEAD: &str = "pointsman/some/work";
/// A hook for the remote: the process that serves the push dies once all refs are changed.
const DIE_WHEN_COMMITTED: &str = "[ \"$1\" = committed ] || exit 0\nkill -9 $PPID";
/// A hook for the remote.
const NOT_TODAY: &str = "echo 'no merges on Friday' >&2\nexit 1";

fn proof(world: &BuiltinWorld, number: u64) -> String {
    format!("refs/pointsman/merged/{}/{number}", world.repository.id)
}

fn wanted(commit: &CommitId) -> WantedPullRequest {
    WantedPullRequest {
        head_ref: HEAD.to_owned(),
        base_ref: "main".to_owned(),
        commit: commit.clone(),
        title: "Some work".to_owned(),
        body: String::new(),
        label: "agent".to_owned(),
    }
}

/// Polls `is_so` until it holds, while `work` goes on; `work` is dropped then, as if it were killed.
async fn kill_when<F, C>(work: impl Future<Output = F>, mut is_so: impl FnMut() -> C)
where
    C: Future<Output = bool>,
{
    let stopwatch = SystemStopwatch::default();
    let watch = async {
        while !is_so().await {
            assert!(stopwatch.elapsed() < SOON, "it never became so");
        }
    };
    tokio::select! {
        _ = work => panic!("it ended before"),
        () = watch => {}
    }
}

#[tokio::test]
async fn a_merge_is_proven_by_a_ref() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let commit = merged(&world, &wanted).await;
    assert_eq!(
        world.reference(&proof(&world, wanted.number)).await,
        Some(commit.clone())
    );
    let show = [
        "show",
        "--no-patch",
        "--format=%an <%ae> %ct%n%B",
        commit.as_str(),
    ];
    assert_eq!(
        world.remote.text(show).await.unwrap(),
        format!(
            "Pointsman <pointsman@localhost> 1700000000\nMerge pull request #{}: Some work\n\nPointsman-Head: {}",
            wanted.number, wanted.head
        )
    );
}

#[tokio::test]
async fn a_squash_names_its_pull_request_and_keeps_its_head() {
    let world = BuiltinWorld::new().await;
    let wanted = WantedMerge {
        method: MergeMethod::Squash,
        ..opened(&world).await
    };
    let commit = merged(&world, &wanted).await;
    let name = format!(
        "refs/pointsman/squashed/{}/{}",
        world.repository.id, wanted.number
    );
    assert_eq!(world.reference(&name).await, Some(wanted.head.clone()));
    let show = [
        "show",
        "--no-patch",
        "--format=%an %cn%n%B",
        commit.as_str(),
    ];
    assert_eq!(
        world.remote.text(show).await.unwrap(),
        format!(
            "Pointsman Pointsman\nSome work (#{})\n\nPointsman-Head: {}",
            wanted.number, wanted.head
        )
    );
}

#[tokio::test]
async fn what_was_merged_and_taken_back_is_not_merged_again() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let before = base(&world).await;
    merged(&world, &wanted).await;
    world.put("main", Some(&before)).await;
    let outcome = merge(&world, &wanted).await;
    assert!(
        matches!(outcome, MergeOutcome::Refused { .. }),
        "{outcome:?}"
    );
    assert_eq!(base(&world).await, before);
}

/// fabrik #1614, ADR-1615: another pull request was credited with the work.
#[tokio::test]
async fn a_proof_of_another_head_is_not_taken_for_this_one() {
    let world = BuiltinWorld::new().await;
    let mut wanted = opened(&world).await;
    merged(&world, &wanted).await;
    wanted.head = world.commit(&[&wanted.head], &[("more", "1")]).await;
    world.put(HEAD, Some(&wanted.head)).await;
    let outcome = merge(&world, &wanted).await;
    assert!(
        matches!(outcome, MergeOutcome::Refused { .. }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_push_during_ours_wins_and_is_seen() {
    let world = BuiltinWorld::new().await;
    let from = base(&world).await;
    world.put(HEAD, Some(&from)).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    let theirs = world.commit(&[&from], &[("a", "2")]).await;
    world.move_during_push(HEAD, &theirs).await;
    let outcome = world.forge.move_branch(&world.repository, HEAD, &from, &to);
    assert_eq!(
        outcome.await.unwrap(),
        MoveOutcome::Superseded {
            head: theirs.clone()
        }
    );
    assert_eq!(world.tip(HEAD).await, Some(theirs));
}

#[tokio::test]
async fn a_branch_made_during_ours_wins_and_is_seen() {
    let world = BuiltinWorld::new().await;
    let from = base(&world).await;
    let ours = world.commit(&[&from], &[("a", "1")]).await;
    let theirs = world.commit(&[&from], &[("a", "2")]).await;
    world.move_during_push(HEAD, &theirs).await;
    let wanted = wanted(&ours);
    let outcome = world.forge.open_pull_request(&world.repository, &wanted);
    assert_eq!(
        outcome.await.unwrap(),
        OpenOutcome::Superseded {
            head: theirs.clone()
        }
    );
    assert_eq!(world.tip(HEAD).await, Some(theirs));
}

#[tokio::test]
async fn a_merge_is_made_anew_on_a_base_that_moved_during_it() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let theirs = world
        .commit(&[&base(&world).await], &[("theirs", "1")])
        .await;
    world.move_during_push("main", &theirs).await;
    let commit = merged(&world, &wanted).await;
    assert_eq!(world.parents(&commit).await, [theirs, wanted.head]);
    assert_eq!(world.file(&commit, "theirs").await, "1");
}

#[tokio::test]
async fn a_base_that_never_rests_is_waited_for() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let script = "unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES\n\
        as='git -c user.name=A -c user.email=a@example.invalid'\n\
        git update-ref refs/heads/main $($as commit-tree -p main -m more main^{tree})";
    world.hook("pre-receive", script).await;
    let outcome = merge(&world, &wanted).await;
    let MergeOutcome::Waiting { reason } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(reason, "others keep pushing to main");
    assert_eq!(world.reference(&proof(&world, wanted.number)).await, None);
}

#[tokio::test]
async fn a_refused_atomic_push_changes_neither_ref() {
    for declined in ["refs/heads/main", "refs/pointsman/merged/*"] {
        let world = BuiltinWorld::new().await;
        let wanted = opened(&world).await;
        let before = base(&world).await;
        let script = format!("case \"$1\" in {declined}) ;; *) exit 0 ;; esac\n{NOT_TODAY}");
        world.hook("update", &script).await;
        let outcome = merge(&world, &wanted).await;
        let MergeOutcome::Waiting { reason } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(reason.contains("no merges on Friday"), "{reason}");
        assert!(reason.contains("hook declined"), "{reason}");
        assert!(
            !reason.contains('/') || reason.contains("refs/"),
            "{reason}"
        );
        assert_eq!(base(&world).await, before);
        assert_eq!(world.reference(&proof(&world, wanted.number)).await, None);
        assert!(item(&world, wanted.number).await.is_open);
        world.unhook("update");
        merged(&world, &wanted).await;
    }
}

#[tokio::test]
async fn a_branch_that_the_remote_protects_is_waited_for() {
    let world = BuiltinWorld::new().await;
    let from = base(&world).await;
    world.put(HEAD, Some(&from)).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    world.hook("pre-receive", NOT_TODAY).await;
    let outcome = world
        .forge
        .move_branch(&world.repository, HEAD, &from, &to)
        .await;
    assert!(
        matches!(outcome.unwrap(), MoveOutcome::Waiting { reason } if reason.contains("Friday"))
    );
    assert_eq!(world.tip(HEAD).await, Some(from));
    let commit = world.reference("refs/heads/main").await.unwrap();
    let wanted = WantedPullRequest {
        head_ref: "another".to_owned(),
        ..wanted(&commit)
    };
    let outcome = world
        .forge
        .open_pull_request(&world.repository, &wanted)
        .await;
    assert!(matches!(outcome.unwrap(), OpenOutcome::Waiting { .. }));
}

/// Merges, but the answer is lost and no row is written. Returns the merge commit.
async fn merged_without_an_answer(world: &BuiltinWorld, wanted: &WantedMerge) -> CommitId {
    world
        .hook("reference-transaction", DIE_WHEN_COMMITTED)
        .await;
    let outcome = world.forge.merge(&world.repository, wanted).await;
    assert!(
        matches!(outcome, Err(Error::Unavailable { .. })),
        "{outcome:?}"
    );
    world.unhook("reference-transaction");
    base(world).await
}

#[tokio::test]
async fn a_lost_answer_to_a_merge_is_found_by_the_next_call() {
    for method in MergeMethod::ALL {
        let world = BuiltinWorld::new().await;
        let wanted = WantedMerge {
            method: *method,
            ..opened(&world).await
        };
        let before = base(&world).await;
        let commit = merged_without_an_answer(&world, &wanted).await;
        assert_eq!(world.parents(&commit).await[0], before, "{method}");
        assert_eq!(merged(&world, &wanted).await, commit, "{method}");
        assert_eq!(base(&world).await, commit, "{method}");
    }
}

#[tokio::test]
async fn a_lost_answer_to_taking_the_base_in_is_found_by_the_next_call() {
    let world = BuiltinWorld::new().await;
    let wanted = WantedMerge {
        method: MergeMethod::FastForward,
        ..opened(&world).await
    };
    let onto = world.commit(&[&base(&world).await], &[("else", "1")]).await;
    world.put("main", Some(&onto)).await;
    merged_without_an_answer(&world, &wanted).await;
    let head = world.tip(HEAD).await.unwrap();
    assert_eq!(
        world.parents(&head).await,
        [wanted.head.clone(), onto.clone()]
    );
    let outcome = merge(&world, &wanted).await;
    assert_eq!(outcome, MergeOutcome::HeadMoved { head: head.clone() });
    assert_eq!(world.tip(HEAD).await, Some(head));
    assert_eq!(base(&world).await, onto);
}

#[tokio::test]
async fn a_lost_answer_is_found_though_all_branches_went_on() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let commit = merged_without_an_answer(&world, &wanted).await;
    let more = world.commit(&[&wanted.head], &[("more", "1")]).await;
    world.put(HEAD, Some(&more)).await;
    let later = world.commit(&[&commit], &[("later", "1")]).await;
    world.put("main", Some(&later)).await;
    assert_eq!(merged(&world, &wanted).await, commit);
    assert_eq!(base(&world).await, later);
}

#[tokio::test]
async fn what_was_taken_back_before_its_row_was_written_is_not_merged_again() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let before = base(&world).await;
    merged_without_an_answer(&world, &wanted).await;
    world.put("main", Some(&before)).await;
    let outcome = merge(&world, &wanted).await;
    let MergeOutcome::Refused { reason } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.ends_with("not on main any more"), "{reason}");
    assert_eq!(base(&world).await, before);
}

#[tokio::test]
async fn a_push_expects_what_was_seen_and_not_what_is_there() {
    let world = BuiltinWorld::new().await;
    let seen = base(&world).await;
    let ours = world.commit(&[&seen], &[("a", "1")]).await;
    let theirs = world.commit(&[&seen], &[("a", "2")]).await;
    let mirrors = &world.forge.mirrors;
    let mirror = mirrors.take(&world.repository, "test").await.unwrap();
    mirror.look().await.unwrap();
    world.put("main", Some(&theirs)).await;
    for expected in [Expected::At(seen), Expected::Absent] {
        let update = Update {
            reference: "refs/heads/main".to_owned(),
            expected,
            to: ours.clone(),
        };
        let outcome = push(&mirror, &[update]).await.unwrap();
        assert!(matches!(outcome, Pushed::Rejected { .. }), "{outcome:?}");
        assert_eq!(base(&world).await, theirs);
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_move_is_found_by_the_next_call() {
    let world = BuiltinWorld::new().await;
    let from = base(&world).await;
    world.put(HEAD, Some(&from)).await;
    let to = world.commit(&[&from], &[("a", "1")]).await;
    world
        .hook("reference-transaction", DIE_WHEN_COMMITTED)
        .await;
    let call = || world.forge.move_branch(&world.repository, HEAD, &from, &to);
    assert!(matches!(call().await, Err(Error::Unavailable { .. })));
    world.unhook("reference-transaction");
    assert_eq!(
        call().await.unwrap(),
        MoveOutcome::Done { head: to.clone() }
    );
}

#[tokio::test]
async fn killed_between_push_and_row_it_is_merged_once() {
    for method in MergeMethod::ALL {
        let world = BuiltinWorld::new().await;
        let wanted = WantedMerge {
            method: *method,
            ..opened(&world).await
        };
        let before = base(&world).await;
        // While this is open, no row is written.
        let writer = world.store.begin().await.unwrap();
        kill_when(world.forge.merge(&world.repository, &wanted), || async {
            world
                .reference(&proof(&world, wanted.number))
                .await
                .is_some()
        })
        .await;
        drop(writer);
        let commit = base(&world).await;
        // A look alone finds it, and so does the repeated call.
        let seen = item(&world, wanted.number).await;
        assert_eq!(seen.merged_commit, Some(commit.clone()), "{method}");
        assert_eq!(merged(&world, &wanted).await, commit, "{method}");
        assert_eq!(world.parents(&commit).await[0], before, "{method}");
    }
}

#[tokio::test]
async fn killed_between_push_and_row_one_pull_request_is_opened() {
    let world = BuiltinWorld::new().await;
    let commit = world.commit(&[&base(&world).await], &[("a", "1")]).await;
    let writer = world.store.begin().await.unwrap();
    let wanted = wanted(&commit);
    kill_when(
        world.forge.open_pull_request(&world.repository, &wanted),
        || async { world.tip(HEAD).await.is_some() },
    )
    .await;
    drop(writer);
    let first = contract::open(&world, &commit).await;
    assert_eq!(first.number, 1);
    assert_eq!(contract::open(&world, &commit).await, first);
}

#[tokio::test]
async fn two_processes_merge_once() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let before = base(&world).await;
    let other = world.another_forge();
    let (one, two) = tokio::join!(
        world.forge.merge(&world.repository, &wanted),
        other.merge(&world.repository, &wanted)
    );
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(
        world.parents(&base(&world).await).await,
        [before, wanted.head]
    );
}

#[tokio::test]
async fn two_processes_open_one_pull_request() {
    let world = BuiltinWorld::new().await;
    let commit = world.commit(&[&base(&world).await], &[("a", "1")]).await;
    let other = world.another_forge();
    let wanted = wanted(&commit);
    let (one, two) = tokio::join!(
        world.forge.open_pull_request(&world.repository, &wanted),
        other.open_pull_request(&world.repository, &wanted)
    );
    assert_eq!(one.unwrap(), two.unwrap());
}

#[tokio::test]
async fn a_remote_that_is_not_there_is_not_available() {
    let mut world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    world.repository.git_url.push_str("-gone");
    let outcome = world.forge.merge(&world.repository, &wanted).await;
    assert!(
        matches!(outcome, Err(Error::Unavailable { .. })),
        "{outcome:?}"
    );
    let outcome = world.forge.branch(&world.repository, "main").await;
    assert!(
        matches!(outcome, Err(Error::Unavailable { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_bare_copy_that_was_removed_is_made_again() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    std::fs::remove_dir_all(world.mirror()).unwrap();
    merged(&world, &wanted).await;
}

#[tokio::test]
async fn a_lock_that_a_killed_process_left_is_no_obstacle() {
    let world = BuiltinWorld::new().await;
    let wanted = opened(&world).await;
    let lock = world.mirror().join("refs/remote/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let onto = world.commit(&[&base(&world).await], &[("else", "1")]).await;
    world.put("main", Some(&onto)).await;
    merged(&world, &wanted).await;
}

fn workflow(world: &BuiltinWorld) -> Workflow {
    let identity = Identity {
        id: WorkflowId(Uuid::from_u128(7)),
        repository: world.repository.id,
        kind: Kind::PullRequest,
        number: 1,
        title: String::new(),
        body: String::new(),
        head_ref: HEAD.to_owned(),
        base_ref: "main".to_owned(),
        parent: None,
        predecessor: None,
        created_at: NOW,
    };
    Workflow::new(identity, &Policy::default(), 1, None)
}

fn run(world: &BuiltinWorld, id: u128, name: &str, conclusion: Option<Conclusion>) -> CheckRun {
    CheckRun {
        id: CheckId(Uuid::from_u128(id)),
        repository: world.repository.id,
        workflow: WorkflowId(Uuid::from_u128(7)),
        name: name.to_owned(),
        command: "make test".to_owned(),
        commit: "0123456789012345678901234567890123456789".parse().unwrap(),
        run: 1,
        conclusion,
        exit_status: conclusion.map(|_| 1),
        log_tail: "the end".to_owned(),
        created_at: NOW,
        changed_at: NOW,
    }
}

#[tokio::test]
async fn failed_checks_and_no_others_run_again_once() {
    let world = BuiltinWorld::new().await;
    let runs = [
        run(&world, 10, "failed", Some(Conclusion::Failure)),
        run(&world, 11, "passed", Some(Conclusion::Success)),
        run(&world, 12, "running", None),
        run(&world, 13, "timed out", Some(Conclusion::TimedOut)),
    ];
    let (workflow, commit) = (runs[0].workflow, runs[0].commit.clone());
    let mut tx = world.store.begin().await.unwrap();
    tx.insert_workflow(&self::workflow(&world), NOW)
        .await
        .unwrap();
    for run in &runs {
        tx.insert_check_run(run).await.unwrap();
    }
    tx.commit().await.unwrap();
    for _ in 0..2 {
        let rerun = world
            .forge
            .rerun_failed_checks(&world.repository, workflow, &commit);
        rerun.await.unwrap();
        let newest = world.store.check_runs(workflow, &commit).await.unwrap();
        let newest: Vec<_> = newest
            .iter()
            .map(|r| (r.name.as_str(), r.run, r.conclusion))
            .collect();
        assert_eq!(
            newest,
            [
                ("failed", 2, None),
                ("passed", 1, Some(Conclusion::Success)),
                ("running", 1, None),
                ("timed out", 2, None),
            ]
        );
    }
    let checks = world
        .forge
        .checks(&world.repository, workflow, &commit)
        .await
        .unwrap();
    let tails: Vec<_> = checks
        .iter()
        .map(|c| (c.name.as_str(), c.log_tail.as_str()))
        .collect();
    assert_eq!(
        tails,
        [
            ("failed", ""),
            ("passed", "the end"),
            ("running", "the end"),
            ("timed out", "")
        ]
    );
}
