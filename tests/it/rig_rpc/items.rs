//! Policies that are changed, and items that are closed, read and talked about.

use super::*;

#[tokio::test]
async fn update_policy_names_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.repositories();
    let good = v1::UpdatePolicyRequest {
        repository: REPOSITORY.to_owned(),
        policy: Some(v1::Policy {
            max_tier: Some(2),
            ..v1::Policy::default()
        }),
        update_mask: None,
        reason: "test".to_owned(),
    };
    fn masked(path: &str) -> Option<prost_types::FieldMask> {
        Some(prost_types::FieldMask {
            paths: vec![path.to_owned()],
        })
    }
    let table: Vec<Bad<v1::UpdatePolicyRequest>> = vec![
        ("repository", |r| r.repository.clear()),
        ("reason", |r| r.reason.clear()),
        ("reason", |r| r.reason = text(1001)),
        ("update_mask", |r| r.update_mask = masked("tiers")),
        ("policy.max_tier", |r| {
            r.policy.get_or_insert_default().max_tier = Some(10);
        }),
        ("policy.merge_method", |r| {
            r.policy.get_or_insert_default().merge_method = 9;
        }),
    ];
    check_table!(scene, client, update_policy, good, table);
    let nobody = with(&good, |r| r.repository = "nobody".to_owned());
    let answer = client.update_policy(nobody).await;
    scene.refusal(answer, Code::NotFound, "no such repository");
    let max_tier = |answer: Response<v1::UpdatePolicyResponse>| {
        let answer = answer.into_inner();
        let policy = answer.repository.and_then(|r| r.policy);
        (answer.changed, policy.and_then(|p| p.max_tier))
    };
    let set = client.update_policy(good.clone()).await;
    assert_eq!(max_tier(set.expect("it is set")), (true, Some(2)));
    // Named and not set: the default again.
    let reset = with(&good, |r| {
        r.policy = None;
        r.update_mask = masked("max_tier");
    });
    let reset = client.update_policy(reset).await;
    assert_eq!(max_tier(reset.expect("it is reset")), (true, Some(3)));
}

#[tokio::test]
async fn calls_about_what_is_said_and_closed_name_each_bad_field() {
    let scene = Scene::new().await;
    let mut client = scene.repositories();
    let good = v1::CommentRequest {
        repository: REPOSITORY.to_owned(),
        number: 1,
        body: "hello".to_owned(),
        request_id: String::new(),
        reason: "test".to_owned(),
    };
    let table: Vec<Bad<v1::CommentRequest>> = vec![
        ("repository", |r| r.repository.clear()),
        ("body", |r| r.body = " ".to_owned()),
        ("body", |r| r.body = text(65_537)),
        ("request_id", |r| r.request_id = "1".to_owned()),
        ("reason", |r| r.reason.clear()),
        ("reason", |r| r.reason = text(1001)),
    ];
    check_table!(scene, client, comment, good, table);
    let nowhere = with(&good, |r| r.number = LARGEST);
    let answer = client.comment(nowhere).await;
    scene.refusal(answer, Code::NotFound, "no such item");
    let edge = with(&good, |r| r.body = text(65_536));
    // A page of the longest comments fits into an answer.
    for _ in 0..50 {
        client.comment(edge.clone()).await.expect("it is taken");
    }
    let list = v1::ListCommentsRequest {
        repository: REPOSITORY.to_owned(),
        number: 1,
        after_comment: 0,
        page_size: 50,
    };
    let table: Vec<Bad<v1::ListCommentsRequest>> = vec![
        ("repository", |r| r.repository.clear()),
        ("page_size", |r| r.page_size = 51),
    ];
    check_table!(scene, client, list_comments, list, table);
    let answer = client.list_comments(list).await.expect("they are listed");
    assert_eq!(answer.into_inner().comments.len(), 50);
    let close = v1::CloseItemRequest {
        repository: REPOSITORY.to_owned(),
        number: 1,
        reason: "test".to_owned(),
    };
    let table: Vec<Bad<v1::CloseItemRequest>> = vec![
        ("repository", |r| r.repository.clear()),
        ("reason", |r| r.reason.clear()),
    ];
    check_table!(scene, client, close_item, close, table);
    let nowhere = with(&close, |r| r.number = u64::MAX);
    let answer = client.close_item(nowhere).await;
    scene.refusal(answer, Code::NotFound, "no such item");
    let answer = client.close_item(close).await.expect("it is closed");
    let answer = answer.into_inner();
    assert!(answer.changed && answer.item.is_some_and(|item| !item.open));
    assert_eq!(
        answer.workflow.map(|w| w.state()),
        Some(v1::WorkflowState::Abandoned)
    );
    let list = v1::ListItemsRequest {
        repository: REPOSITORY.to_owned(),
        ..v1::ListItemsRequest::default()
    };
    let table: Vec<Bad<v1::ListItemsRequest>> = vec![
        ("repository", |r| r.repository.clear()),
        ("state", |r| r.state = 9),
        ("label", |r| r.label = text(101)),
        ("page_size", |r| r.page_size = 201),
    ];
    check_table!(scene, client, list_items, list, table);
    for (state, n) in [(0, 1), (1, 0), (2, 1)] {
        let some = with(&list, |r| r.state = state);
        let answer = client.list_items(some).await.expect("they are listed");
        assert_eq!(answer.into_inner().items.len(), n, "state {state}");
    }
    let get = v1::GetItemRequest {
        repository: REPOSITORY.to_owned(),
        number: 1,
    };
    let answer = client.get_item(get).await.expect("it is shown");
    assert!(answer.into_inner().item.is_some_and(|item| !item.open));
}
