//! Rounds with real processes: who resolves conflicts, and what each harness is told of the rounds before.

use pointsman_proto::v1::WorkflowState;
use pointsman_tests::world::{Invocation, Setup, Step};

use crate::process_support::world;

/// A text as prompts quote it.
fn quoted(title: &str, text: &str) -> String {
    format!("### {title}\n\n```text\n{text}\n```\n")
}

#[track_caller]
fn says(run: &Invocation, parts: &[&str]) {
    for part in parts {
        assert!(
            run.prompt.0.contains(part),
            "{part:?} is not in {}",
            run.prompt.0
        );
    }
}

#[track_caller]
fn does_not_say(run: &Invocation, parts: &[&str]) {
    for part in parts {
        assert!(
            !run.prompt.0.contains(part),
            "{part:?} is in {}",
            run.prompt.0
        );
    }
}

#[tokio::test]
async fn two_pull_requests_on_the_same_lines_are_both_merged() {
    let world = world(Setup::default()).await;
    let change = || Step::change("shared.txt");
    let plans = [change(), change(), vec![Step::no_change()]];
    let script = world.script().with("implementer", plans);
    world.follow(&script.gated("reviewer"));
    let issues = [world.submit().await, world.submit().await];
    world.run_of("reviewer", 2).await;
    // Both are approved; the merge of one is the conflict of the other.
    world.open("reviewer");
    let mut merged = Vec::new();
    for issue in issues {
        let story = world.until_state(issue, WorkflowState::CreatedPr).await;
        let number = story.workflow().pull_request_number;
        merged.push(world.until_state(number, WorkflowState::Merged).await);
    }
    for issue in issues {
        world.until_merged(issue).await;
    }
    merged.sort_by_key(|story| story.count("conflict_detected"));
    let [first, second] = &merged[..] else {
        panic!("two pull requests: {merged:#?}");
    };
    assert_eq!(first.count("conflict_detected"), 0);
    assert_eq!(second.count("conflict_detected"), 1);
    assert_eq!(second.count("conflict_round_first"), 1);

    let resolver = world.run_of("conflict_resolver", 1).await;
    assert_eq!(resolver.base, first.workflow().merged_commit);
    says(
        &resolver,
        &[
            "# Task: conflict_resolver\n",
            "do not rebase",
            "- base branch: main (here as origin/main)\n",
            &format!("- base commit: {}\n", resolver.base),
            &format!("- HEAD: {}\n", resolver.head),
            &quoted("Paths in conflict", "shared.txt"),
        ],
    );
    // What it merged is where the next implementer starts, and nothing is in conflict any more.
    let implementer = world.run_of("implementer", 3).await;
    let parents = format!("{}^@", implementer.head);
    let parents = world.remote.git(["rev-parse", &parents]).await;
    assert_eq!(parents, format!("{}\n{}", resolver.head, resolver.base));
    does_not_say(&implementer, &["Paths in conflict"]);
    world.finish().await;
}

#[tokio::test]
async fn each_harness_is_told_what_the_rounds_before_found_out() {
    let setup = Setup {
        ci: "test -e {gates}/green || { echo the check says no; exit 1; }".to_owned(),
        ..Setup::default()
    };
    let world = world(setup).await;
    let wait = |gate: &str| Step::WaitFor(gate.to_owned());
    let implementers = [
        vec![Step::Write("no JSON".to_owned())],
        Step::change("one.txt"),
        [vec![wait("third")], Step::change("two.txt")].concat(),
        vec![Step::failed()],
        [vec![wait("fifth")], Step::change("three.txt")].concat(),
        Step::change("four.txt"),
    ];
    let reviewers = [
        vec![Step::request_changes("rename it")],
        vec![Step::approve()],
    ];
    world.follow(
        &world
            .script()
            .with("implementer", implementers)
            .with("reviewer", reviewers),
    );
    let issue = world.submit().await;

    let estimator = world.run_of("estimator", 1).await;
    says(
        &estimator,
        &[
            &quoted("Title", "Something is missing"),
            &quoted("Description", "It should be there."),
            &format!("- base commit: {}\n", estimator.head),
        ],
    );
    does_not_say(&estimator, &["### Plan", "Earlier failures"]);
    let again = world.run_of("implementer", 2).await;
    let plan = quoted("Plan", "do as the script says");
    says(&again, &[&plan, "no_valid_result: result is no JSON"]);

    let red = world.run_of("implementer", 3).await;
    let failed_check = quoted(
        "Failed check",
        "check: ci\nconclusion: failure\nthe check says no",
    );
    says(&red, &[&plan, &failed_check]);
    does_not_say(&red, &["Earlier failures", "Review notes"]);
    world.open("green");
    world.open("third");

    let reviewer = world.run_of("reviewer", 1).await;
    says(&reviewer, &[&format!("- HEAD: {}\n", reviewer.head), &plan]);
    does_not_say(&reviewer, &["Failed check", "Review notes"]);
    let notes = quoted("Review notes", "rename it");
    let reviewed = world.run_of("implementer", 4).await;
    says(&reviewed, &[&notes]);
    assert_eq!(reviewed.head, reviewer.head);

    let escalator = world.run_of("escalator", 1).await;
    says(
        &escalator,
        &[&notes, &plan, "### Earlier failures", "the script says so"],
    );
    assert_eq!(escalator.tier, "1");
    let raised = world.run_of("implementer", 5).await;
    let plan = quoted("Plan", "try harder");
    says(&raised, &[&notes, &plan, "- tier: 2\n"]);
    assert_eq!(raised.tier, "2");

    // Somebody pushes before that one is done.
    let remote = &world.remote;
    let head = &raised.head;
    let tree = format!("{head}^{{tree}}");
    let push = ["commit-tree", "-p", head, "-m", "by a person", &tree];
    let theirs = remote.git(push).await;
    let branches = ["for-each-ref", "--format=%(refname)", "--points-at", head];
    let branches = remote.git(branches).await;
    let branch = branches
        .lines()
        .find(|name| name.starts_with("refs/heads/pointsman/"))
        .expect("the pull request has a branch");
    remote.git(["update-ref", branch, &theirs, head]).await;
    world.open("fifth");
    let last = world.run_of("implementer", 6).await;
    assert_eq!(last.head, theirs);
    let tale = world.until_merged(issue).await;
    let superseded = tale.pull_request.facts("attempt_superseded");
    let superseded = superseded["superseded"].as_str().expect("it is named");
    says(&last, &["### Superseded commits", superseded, &plan]);

    let approver = world.run_of("reviewer", 2).await;
    says(&approver, &[&notes]);
    assert_eq!(tale.pull_request.workflow().tier, 2);
    world.finish().await;
}
