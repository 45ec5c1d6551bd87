//! What holds for every merge method.

use super::{HEAD, World, base, item, merge, merged, opened_for};
use crate::{
    domain::policy::MergeMethod,
    forge::{MergeOutcome, WantedMerge},
};

pub(crate) async fn each_method_brings_the_work_onto_the_base_branch(
    world: &dyn World,
    method: MergeMethod,
) {
    let wanted = opened_for(world, method).await;
    let before = base(world).await;
    let commit = merged(world, &wanted).await;
    assert_eq!(base(world).await, commit, "{method}");
    let parents = match method {
        MergeMethod::Merge => vec![before, wanted.head.clone()],
        MergeMethod::Squash | MergeMethod::FastForward => vec![before],
    };
    assert_eq!(world.parents(&commit).await, parents, "{method}");
    if method == MergeMethod::FastForward {
        assert_eq!(commit, wanted.head);
    }
    assert_eq!(world.file(&commit, "work").await, "done", "{method}");
    let item = item(world, wanted.number).await;
    assert!(!item.is_open, "{method}");
    assert_eq!(item.merged_commit, Some(commit), "{method}");
}

pub(crate) async fn each_method_finds_its_first_merge_again(
    world: &dyn World,
    method: MergeMethod,
) {
    let wanted = opened_for(world, method).await;
    let commit = merged(world, &wanted).await;
    let later = world.commit(&[&commit], &[("later", "1")]).await;
    world.put("main", Some(&later)).await;
    world.put(HEAD, None).await;
    assert_eq!(merged(world, &wanted).await, commit, "{method}");
    assert_eq!(base(world).await, later, "{method}");
    // Whatever the method is now: it is merged.
    for method in MergeMethod::ALL {
        let wanted = WantedMerge {
            method: *method,
            ..wanted.clone()
        };
        assert_eq!(merged(world, &wanted).await, commit, "{method}");
    }
    assert_eq!(base(world).await, later, "{method}");
}

pub(crate) async fn each_method_merges_once_at_the_same_time(
    world: &dyn World,
    method: MergeMethod,
) {
    let wanted = opened_for(world, method).await;
    let (one, other) = tokio::join!(merged(world, &wanted), merged(world, &wanted));
    assert_eq!(one, other, "{method}");
    assert_eq!(base(world).await, one, "{method}");
}

pub(crate) async fn no_method_merges_a_moved_head(world: &dyn World, method: MergeMethod) {
    let wanted = opened_for(world, method).await;
    let before = base(world).await;
    let theirs = world.commit(&[&wanted.head], &[("more", "1")]).await;
    world.put(HEAD, Some(&theirs)).await;
    let outcome = merge(world, &wanted).await;
    assert_eq!(outcome, MergeOutcome::HeadMoved { head: theirs });
    assert_eq!(base(world).await, before, "{method}");
}

pub(crate) async fn no_method_merges_a_conflict(world: &dyn World, method: MergeMethod) {
    let wanted = opened_for(world, method).await;
    let onto = world
        .commit(&[&base(world).await], &[("work", "otherwise")])
        .await;
    world.put("main", Some(&onto)).await;
    let outcome = merge(world, &wanted).await;
    let paths = vec!["work".to_owned()];
    assert_eq!(outcome, MergeOutcome::Conflict { paths }, "{method}");
    assert_eq!(base(world).await, onto, "{method}");
    assert_eq!(world.tip(HEAD).await, Some(wanted.head), "{method}");
}

pub(crate) async fn no_method_merges_what_is_closed(world: &dyn World, method: MergeMethod) {
    let wanted = opened_for(world, method).await;
    let before = base(world).await;
    world.close(wanted.number).await;
    let outcome = merge(world, &wanted).await;
    assert!(
        matches!(outcome, MergeOutcome::Refused { .. }),
        "{method}: {outcome:?}"
    );
    assert_eq!(base(world).await, before, "{method}");
}

pub(crate) async fn no_method_merges_again_what_was_taken_back(
    world: &dyn World,
    method: MergeMethod,
) {
    let wanted = opened_for(world, method).await;
    let before = base(world).await;
    merged(world, &wanted).await;
    world.put("main", Some(&before)).await;
    let outcome = merge(world, &wanted).await;
    assert!(
        matches!(outcome, MergeOutcome::Refused { .. }),
        "{method}: {outcome:?}"
    );
    assert_eq!(base(world).await, before, "{method}");
}
