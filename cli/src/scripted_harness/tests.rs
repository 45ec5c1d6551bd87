use tempfile::TempDir;

use super::*;

const PROGRAM_TEXT: &str = include_str!("../demo/files/slug.sh");
const TEST_TEXT: &str = include_str!("../demo/files/test.sh");
const ISSUE: &str = include_str!("../demo/files/issue.md");

/// A checkout of the demo's repository, with the base branch as the worker gives it.
struct Checkout {
    directory: TempDir,
    git: Git,
}

impl Checkout {
    async fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let git = Git::new(directory.path()).with_identity("Test", "test@example.invalid");
        fs::write(directory.path().join(PROGRAM), PROGRAM_TEXT).unwrap();
        fs::write(directory.path().join("test.sh"), TEST_TEXT).unwrap();
        git.run(["init", "--quiet"]).await.unwrap();
        git.run(["add", "--all"]).await.unwrap();
        git.run(["commit", "--quiet", "-m", "first"]).await.unwrap();
        git.run(["update-ref", "refs/remotes/origin/main", "HEAD"])
            .await
            .unwrap();
        Self { directory, git }
    }

    async fn work(&self, role: &str, quotes: &[(&str, &str)]) -> Verdict {
        let task = Task::new(
            Prompt::parse(&prompt(quotes)),
            self.directory.path().to_owned(),
        );
        task.work(role).await.unwrap()
    }

    fn program(&self) -> String {
        fs::read_to_string(self.directory.path().join(PROGRAM)).unwrap()
    }

    async fn slug(&self, text: &str) -> String {
        let output = tokio::process::Command::new("sh")
            .args([PROGRAM, text])
            .current_dir(self.directory.path())
            .output()
            .await
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }
}

fn prompt(quotes: &[(&str, &str)]) -> String {
    let quotes = quotes
        .iter()
        .map(|(heading, text)| format!("### {heading}\n\n```text\n{text}\n```\n"));
    format!(
        "## Facts\n\n- base branch: main (here as origin/main)\n\n{}",
        quotes.collect::<String>()
    )
}

const RED: (&str, &str) = (
    "Failed check",
    "check: ci\nconclusion: failure\nok: spaces become hyphens\nnot ok: punctuation is left out",
);

#[tokio::test]
async fn the_issue_is_done_by_its_words_and_the_rest_after_ci_complained() {
    let checkout = Checkout::make().await;
    let issue = ("Description", ISSUE);
    let Verdict::Ready { tier: 1, plan } = checkout.work("estimator", &[issue]).await else {
        panic!("the issue is not understood");
    };

    let quotes = [issue, ("Plan", &plan)];
    let verdict = checkout.work("implementer", &quotes).await;
    assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
    assert_eq!(checkout.slug("Hello World").await, "hello-world");
    assert_eq!(checkout.slug("Hello, World!").await, "hello,-world!");

    let quotes = [issue, ("Plan", &plan), RED];
    let verdict = checkout.work("implementer", &quotes).await;
    assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
    assert_eq!(checkout.slug("Hello, World!").await, "hello-world");
    let n_commits = checkout
        .git
        .text(["rev-list", "--count", "HEAD"])
        .await
        .unwrap();
    assert_eq!(n_commits, "3");

    let verdict = checkout.work("implementer", &quotes).await;
    assert!(matches!(verdict, Verdict::NoChange { .. }), "{verdict:?}");
}

#[tokio::test]
async fn a_review_looks_at_the_diff() {
    let checkout = Checkout::make().await;
    let issue = ("Description", ISSUE);
    let review = async || checkout.work("reviewer", &[issue]).await;
    let objection = |verdict: Verdict| match verdict {
        Verdict::RequestChanges { notes } => notes,
        other => panic!("{other:?}"),
    };
    assert!(objection(review().await).contains("nothing is changed"));

    checkout.work("implementer", &[issue]).await;
    let verdict = review().await;
    assert!(matches!(verdict, Verdict::Approve { .. }), "{verdict:?}");

    fs::write(checkout.directory.path().join("test.sh"), "exit 0\n").unwrap();
    checkout
        .git
        .run(["commit", "--quiet", "--all", "-m", "cheat"])
        .await
        .unwrap();
    assert!(objection(review().await).contains("test.sh is changed"));
}

#[tokio::test]
async fn a_conflict_is_resolved_so_that_both_sides_stay() {
    let checkout = Checkout::make().await;
    checkout
        .work("implementer", &[("Title", "no punctuation")])
        .await;
    let theirs = checkout.git.text(["rev-parse", "HEAD"]).await.unwrap();
    checkout
        .git
        .run(["reset", "--quiet", "--hard", "HEAD^"])
        .await
        .unwrap();
    checkout
        .git
        .run(["update-ref", "refs/remotes/origin/main", &theirs])
        .await
        .unwrap();
    checkout
        .work("implementer", &[("Title", "no spaces")])
        .await;

    assert_eq!(
        checkout.work("conflict_resolver", &[]).await,
        Verdict::Resolved {}
    );
    assert!(
        !checkout.program().contains("<<<<"),
        "{}",
        checkout.program()
    );
    assert_eq!(checkout.slug("Hello, World!").await, "hello-world");
    let parents = checkout
        .git
        .text(["rev-list", "--parents", "-1", "HEAD"])
        .await
        .unwrap();
    assert_eq!(parents.split(' ').count(), 3, "{parents}");
}

#[tokio::test]
async fn what_is_not_understood_is_not_done() {
    let checkout = Checkout::make().await;
    let issue = ("Title", "Make it faster");
    let verdict = checkout.work("estimator", &[issue]).await;
    assert!(matches!(verdict, Verdict::Unsure { .. }), "{verdict:?}");
    let verdict = checkout.work("escalator", &[issue]).await;
    assert!(matches!(verdict, Verdict::GiveUp { .. }), "{verdict:?}");
    let verdict = checkout.work("escalator", &[issue, RED]).await;
    assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
}

#[test]
fn a_verdict_is_written_as_the_schemas_have_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let check = |verdict: Verdict, text: &str| {
        verdict.write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    };
    let plan = "p".to_owned();
    check(
        Verdict::Ready { tier: 1, plan },
        r#"{"verdict":"ready","tier":1,"plan":"p"}"#,
    );
    check(Verdict::Resolved {}, r#"{"verdict":"resolved"}"#);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
