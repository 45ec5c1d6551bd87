//! Fail at each step: whichever commit is lost, before it or only its answer, the work ends the same.

use pointsman_master::domain::{
    policy::{MergeMethod, Policy},
    transitions::State,
    workflow::Kind,
};
use pointsman_tests::rig::{BASE, Rig, faulty_store::Loss, run::Errand};

/// What happens beside the lost commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Master {
    LivesOn,
    /// It dies with the commit, and a new one goes on.
    Crashes,
}

/// The whole way, with every caller repeating what is not answered.
async fn whole_way(rig: &mut Rig, master: Master, merge_method: MergeMethod) {
    let mut is_added = false;
    for _ in 0..2 {
        let ci_command = Some("true".to_owned());
        let policy = Policy {
            merge_method,
            ..Policy::default()
        };
        is_added |= rig.add_repository(policy, ci_command).await.is_ok();
    }
    assert!(is_added, "the repository is added");
    rig.submit_until_answered("Make it work").await;
    let mut errand = Errand::new(rig);
    if master == Master::Crashes {
        for _ in 0..100 {
            if !rig.faults.is_due() && !rig.forge_faults.is_due() {
                break;
            }
            errand.step(rig).await;
        }
        rig.crash();
    }
    errand.finish(rig, 100).await;
}

/// What holds at the end, whatever was lost on the way.
async fn check_end(rig: &Rig, context: &str) {
    let history = rig.history().await;
    assert_eq!(history.faults(), Vec::<String>::new(), "{context}");
    assert_eq!(history.loose_ends(), Vec::<String>::new(), "{context}");
    let states: Vec<(Kind, State)> = history
        .workflows
        .iter()
        .map(|row| (row.workflow.kind, row.workflow.state()))
        .collect();
    let expected = [
        (Kind::Issue, State::CreatedPr),
        (Kind::PullRequest, State::Merged),
    ];
    assert_eq!(states, expected, "{context}");
    let merged = history.workflows[1]
        .workflow
        .progress()
        .merged_commit
        .clone();
    let line = rig.remote.line(BASE).await;
    assert_eq!(line.len(), 2, "the first commit, and one merge: {context}");
    assert_eq!(Some(&line[0]), merged.as_ref(), "{context}");
    let repository = history.workflows[0].workflow.repository;
    for number in [1, 2] {
        let item = rig.store.forge_item(repository, number).await;
        assert!(item.expect("the store answers").is_some(), "{context}");
    }
    let third = rig.store.forge_item(repository, 3).await;
    assert_eq!(third.expect("the store answers"), None, "{context}");
}

async fn check_step(n: u64, loss: Loss, master: Master) -> bool {
    let context = format!("commit {n} was lost, {loss:?}, and the master {master:?}");
    let mut rig = Rig::empty().await;
    rig.faults.fail(n, loss);
    whole_way(&mut rig, master, MergeMethod::Merge).await;
    check_end(&rig, &context).await;
    !rig.faults.is_due()
}

/// Every `of`th step from `first` on, until there are no more.
async fn check_steps(loss: Loss, first: u64, of: usize) {
    let mut n_lost = 0;
    for n in (first..).step_by(of) {
        // Each step is lost in both ways, in one of them together with the master.
        let master = if n.is_multiple_of(2) == (loss == Loss::Before) {
            Master::Crashes
        } else {
            Master::LivesOn
        };
        if !check_step(n, loss, master).await {
            break;
        }
        n_lost += 1;
    }
    assert!(n_lost > 10, "{n_lost} commits were lost");
}

#[tokio::test]
async fn every_odd_write_may_be_lost() {
    check_steps(Loss::Before, 1, 2).await;
}

#[tokio::test]
async fn every_even_write_may_be_lost() {
    check_steps(Loss::Before, 2, 2).await;
}

/// rust-lang/homu#191: what was told once and got lost stalled the queue.
#[tokio::test]
async fn every_odd_answer_may_be_lost() {
    check_steps(Loss::After, 1, 2).await;
}

#[tokio::test]
async fn every_even_answer_may_be_lost() {
    check_steps(Loss::After, 2, 2).await;
}

/// Each write to the forge is lost, or only its answer, and in one of both cases the master dies with it.
#[tokio::test]
async fn every_write_to_the_forge_and_every_answer_may_be_lost() {
    let mut n_lost = 0;
    for n in 1_u64.. {
        let mut is_over = false;
        for loss in [Loss::Before, Loss::After] {
            let master = if n.is_multiple_of(2) == (loss == Loss::Before) {
                Master::Crashes
            } else {
                Master::LivesOn
            };
            for method in [MergeMethod::Merge, MergeMethod::Squash] {
                let context = format!(
                    "write {n} to the forge was lost, {loss:?}, and the master {master:?}, {method}"
                );
                let mut rig = Rig::empty().await;
                rig.forge_faults.fail(n, loss);
                whole_way(&mut rig, master, method).await;
                check_end(&rig, &context).await;
                is_over |= rig.forge_faults.is_due();
            }
        }
        if is_over {
            break;
        }
        n_lost += 1;
    }
    assert_eq!(n_lost, 3, "a pull request, a moved branch and a merge");
}
