//! Items and checks of the built-in forge.

use super::world::{World, commit};
use crate::{
    domain::{
        ci::Conclusion,
        ids::{CheckId, RequestId},
        time::Timestamp,
        transitions::State,
        workflow::Kind,
    },
    store::{
        Constraint, Error,
        model::{ForgeComment, ForgeItem, ItemFilter, Repository},
    },
};

fn pull_request(mut item: ForgeItem, head_ref: &str) -> ForgeItem {
    item.kind = Kind::PullRequest;
    item.head_ref = Some(head_ref.to_owned());
    item
}

pub(crate) async fn an_item_is_read_as_it_was_written(world: &World) {
    let repository = world.repository("lamp").await;
    let mut item = pull_request(world.new_item(&repository, 3), "lamp");
    item.request = Some(RequestId(world.id()));
    world.insert_item(&item).await;
    let store = world.store();
    let read = store.forge_item(repository.id, 3).await.unwrap();
    assert_eq!(read.as_ref(), Some(&item));
    let read = store.forge_pull_request(repository.id, "lamp").await;
    assert_eq!(read.unwrap().as_ref(), Some(&item));
    item.labels.clear();
    item.is_open = false;
    item.merged_commit = Some(commit(9));
    item.updated_at = Timestamp(8);
    let mut tx = world.tx().await;
    tx.update_forge_item(&item).await.unwrap();
    let read = tx.forge_item(repository.id, 3).await.unwrap();
    assert_eq!(read.as_ref(), Some(&item));
    let error = tx
        .update_forge_item(&world.new_item(&repository, 4))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::LostRace("item")));
    assert_eq!(tx.forge_item(repository.id, u64::MAX).await.unwrap(), None);
}

pub(crate) async fn items_are_filtered_and_paged(world: &World) {
    let repository = world.repository("lamp").await;
    for number in 1..=4 {
        let mut item = world.new_item(&repository, number);
        item.is_open = number != 2;
        item.labels = if number == 3 {
            vec![]
        } else {
            vec!["agent".to_owned()]
        };
        world.insert_item(&item).await;
    }
    let elsewhere = world.repository("elsewhere").await;
    world.insert_item(&world.new_item(&elsewhere, 9)).await;
    let store = world.store();
    let check = async |is_open: Option<bool>, label: Option<&str>, after, expected: &[u64]| {
        let filter = ItemFilter {
            is_open,
            label: label.map(str::to_owned),
        };
        let page = store.forge_items(repository.id, &filter, after, 2).await;
        let numbers: Vec<u64> = page.unwrap().iter().map(|item| item.number).collect();
        assert_eq!(numbers, expected, "{filter:?} after {after}");
    };
    check(None, None, 0, &[1, 2]).await;
    check(None, None, 2, &[3, 4]).await;
    check(Some(true), None, 0, &[1, 3]).await;
    check(Some(false), None, 0, &[2]).await;
    check(Some(true), Some("agent"), 0, &[1, 4]).await;
    check(None, Some("other"), 0, &[]).await;
    check(None, None, u64::MAX, &[]).await;
}

fn comment(repository: &Repository, number: u64, comment: u64) -> ForgeComment {
    ForgeComment {
        repository: repository.id,
        number,
        comment,
        author: "operator".to_owned(),
        body: format!("said {comment}"),
        request: None,
        created_at: Timestamp(5),
    }
}

pub(crate) async fn comments_are_numbered_an_item_and_paged(world: &World) {
    let repository = world.repository("lamp").await;
    for number in 1..=2 {
        world
            .insert_item(&world.new_item(&repository, number))
            .await;
    }
    let mut tx = world.tx().await;
    for expected in 1..=3 {
        let next = tx.next_comment(repository.id, 1).await.unwrap();
        assert_eq!(next, expected);
        let said = comment(&repository, 1, next);
        tx.insert_forge_comment(&said).await.unwrap();
    }
    assert_eq!(tx.next_comment(repository.id, 2).await.unwrap(), 1);
    tx.commit().await.unwrap();
    let store = world.store();
    let page = store.forge_comments(repository.id, 1, 1, 2).await.unwrap();
    assert_eq!(
        page,
        [comment(&repository, 1, 2), comment(&repository, 1, 3)]
    );
    let none = store.forge_comments(repository.id, 2, 0, 9).await.unwrap();
    assert_eq!(none, []);
    // Of an item that is not there nothing can be said.
    let mut tx = world.tx().await;
    let nowhere = comment(&repository, 7, 1);
    assert!(tx.insert_forge_comment(&nowhere).await.is_err());
}

pub(crate) async fn a_request_makes_one_comment(world: &World) {
    let repository = world.repository("lamp").await;
    world.insert_item(&world.new_item(&repository, 1)).await;
    let request = RequestId(world.id());
    let first = ForgeComment {
        request: Some(request),
        ..comment(&repository, 1, 1)
    };
    let mut tx = world.tx().await;
    assert_eq!(tx.forge_comment_by_request(request).await.unwrap(), None);
    tx.insert_forge_comment(&first).await.unwrap();
    let second = ForgeComment {
        comment: 2,
        ..first.clone()
    };
    let error = tx.insert_forge_comment(&second).await.unwrap_err();
    assert!(
        matches!(error, Error::Constraint(Constraint::CommentRequest)),
        "{error:?}"
    );
    let read = tx.forge_comment_by_request(request).await.unwrap();
    assert_eq!(read, Some(first));
}

pub(crate) async fn a_request_makes_one_item(world: &World) {
    let repository = world.repository("lamp").await;
    let request = RequestId(world.id());
    let mut first = world.new_item(&repository, 1);
    first.request = Some(request);
    let mut tx = world.tx().await;
    assert_eq!(tx.forge_item_by_request(request).await.unwrap(), None);
    tx.insert_forge_item(&first).await.unwrap();
    let mut second = world.new_item(&repository, 2);
    second.request = Some(request);
    let error = tx.insert_forge_item(&second).await.unwrap_err();
    assert!(matches!(error, Error::Constraint(Constraint::ItemRequest)));
    let read = tx.forge_item_by_request(request).await.unwrap();
    assert_eq!(read, Some(first));
}

pub(crate) async fn a_branch_has_one_open_pull_request(world: &World) {
    let (one, two) = (world.repository("one").await, world.repository("two").await);
    let first = pull_request(world.new_item(&one, 1), "lamp");
    world.insert_item(&first).await;
    let mut closed = pull_request(world.new_item(&one, 2), "lamp");
    closed.is_open = false;
    world.insert_item(&closed).await;
    let elsewhere = pull_request(world.new_item(&two, 1), "lamp");
    world.insert_item(&elsewhere).await;
    let mut tx = world.tx().await;
    let second = pull_request(world.new_item(&one, 3), "lamp");
    let error = tx.insert_forge_item(&second).await.unwrap_err();
    assert!(matches!(
        error,
        Error::Constraint(Constraint::OneOpenPullRequest)
    ));
    closed.is_open = true;
    let error = tx.update_forge_item(&closed).await.unwrap_err();
    assert!(matches!(
        error,
        Error::Constraint(Constraint::OneOpenPullRequest)
    ));
    // The open one goes before newer ones, and then the newest.
    let store = world.store();
    let read = store.forge_pull_request(one.id, "lamp").await.unwrap();
    assert_eq!(read.as_ref(), Some(&first));
    let read = tx.open_forge_pull_request(one.id, "lamp").await.unwrap();
    assert_eq!(read.as_ref(), Some(&first));
    let mut ended = first;
    ended.is_open = false;
    tx.update_forge_item(&ended).await.unwrap();
    let read = tx.open_forge_pull_request(one.id, "lamp").await.unwrap();
    assert_eq!(read, None);
    tx.commit().await.unwrap();
    let read = store.forge_pull_request(one.id, "lamp").await.unwrap();
    assert_eq!(read.map(|item| item.number), Some(2));
    assert_eq!(store.forge_pull_request(one.id, "x").await.unwrap(), None);
}

pub(crate) async fn items_are_numbered_a_repository(world: &World) {
    let (one, two) = (world.repository("one").await, world.repository("two").await);
    for number in [1, 2, 7] {
        world.insert_item(&world.new_item(&one, number)).await;
    }
    let mut tx = world.tx().await;
    assert_eq!(tx.next_item_number(one.id).await.unwrap(), 8);
    assert_eq!(tx.next_item_number(two.id).await.unwrap(), 1);
    let too_large = world.new_item(&two, u64::MAX);
    let error = tx.insert_forge_item(&too_large).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

pub(crate) async fn open_items_with_a_label_are_paged(world: &World) {
    let repository = world.repository("lamp").await;
    for number in 1..=5 {
        let mut item = world.new_item(&repository, number);
        match number {
            2 => item.is_open = false,
            3 => item.labels = vec!["points".to_owned()],
            _ => {}
        }
        world.insert_item(&item).await;
    }
    let store = world.store();
    let page = async |label, after, limit| -> Vec<u64> {
        let page = store
            .forge_items_with_label(repository.id, label, after, limit)
            .await
            .unwrap();
        page.iter().map(|item| item.number).collect()
    };
    assert_eq!(page("pointsman", 0, 9).await, [1, 4, 5]);
    assert_eq!(page("pointsman", 0, 2).await, [1, 4]);
    assert_eq!(page("pointsman", 4, 2).await, [5]);
    assert!(page("Pointsman", 0, 9).await.is_empty());
}

pub(crate) async fn the_newest_run_of_each_check_counts(world: &World) {
    let repository = world.repository("lamp").await;
    let workflow = world.workflow(&repository, State::AwaitingCi).await;
    let mut make = world.new_check(&workflow, "make", 2);
    for check in [
        world.new_check(&workflow, "make", 1),
        make.clone(),
        world.new_check(&workflow, "lint", 1),
    ] {
        world.insert_check(&check).await;
    }
    make.conclusion = Some(Conclusion::TimedOut);
    make.exit_status = Some(u32::MAX);
    make.log_tail = "…".to_owned();
    make.changed_at = Timestamp(9);
    let mut tx = world.tx().await;
    tx.update_check_run(&make).await.unwrap();
    assert_eq!(tx.check_run(make.id).await.unwrap().as_ref(), Some(&make));
    let nobody = CheckId(world.id());
    assert_eq!(tx.check_run(nobody).await.unwrap(), None);
    let runs = tx.check_runs(workflow.id, &commit(1)).await.unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!((runs[0].name.as_str(), runs[0].run), ("lint", 1));
    assert_eq!(runs[1], make);
    tx.commit().await.unwrap();
    let store = world.store();
    let read = store.check_runs(workflow.id, &commit(1)).await.unwrap();
    assert_eq!(read, runs);
    let none = store.check_runs(workflow.id, &commit(2)).await.unwrap();
    assert_eq!(none, []);
}
