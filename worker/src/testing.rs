//! Assignments for tests.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    assignment::{Assignment, Commit, Item, Job, Kind, LeaseKey, Repository},
    lease::BootTime,
};

/// A lease of a pull request, with nothing known about it yet.
pub(crate) fn assignment(job: Job) -> Assignment {
    Assignment {
        key: LeaseKey::new(Uuid::from_u128(1), 1, &"ab".repeat(16)).unwrap(),
        asked_at: BootTime::new(Duration::from_secs(1)),
        ttl: Duration::from_secs(60),
        job,
        repository: Repository {
            id: "repo-1".to_owned(),
            name: "example".to_owned(),
            git_url: "/nonexistent".to_owned(),
        },
        checkout_commit: Commit::new(&"0".repeat(40)).unwrap(),
        base_branch: "main".to_owned(),
        push_ref: "refs/pointsman/1/1-ab".to_owned(),
        item: Item {
            workflow_id: "w".to_owned(),
            kind: Kind::PullRequest,
            number: 7,
            title: String::new(),
            body: String::new(),
            plan: String::new(),
            ci_failures: Vec::new(),
            review_notes: String::new(),
            conflict_paths: Vec::new(),
            superseded_commits: Vec::new(),
            earlier_failures: Vec::new(),
        },
    }
}
