//! The commands that follow what changes, over a real path from an issue to its merge.

use pointsman_tests::world::Setup;
use serde_json::Value;

use crate::process_support::world;

#[tokio::test]
async fn a_watch_ends_with_the_merge_and_tells_each_change_on_a_line() {
    let world = world(Setup::default()).await;
    let issue = world.submit().await;
    let item = format!("demo#{issue}");
    let watched = world
        .run(["watch", &item, "--until", "terminal", "-o", "json"])
        .await;
    assert_eq!(watched.status, Some(0), "{watched:?}");
    let told: Vec<Value> = watched
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let last = told.last().expect("something was told");
    assert_eq!(last["state"], "MERGED");
    // Of each workflow a later line is a later version.
    for pair in told
        .windows(2)
        .filter(|pair| pair[0]["id"] == pair[1]["id"])
    {
        assert!(pair[0]["version"].as_u64() < pair[1]["version"].as_u64());
    }
    // What is over already is told once more, in plain lines for people.
    let again = world.run(["watch", &item, "--until", "terminal"]).await;
    assert_eq!(again.status, Some(0), "{again:?}");
    let lines: Vec<&str> = again.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{again:?}");
    assert!(lines[0].contains("issue  CREATED_PR"), "{lines:?}");
    assert!(lines[1].contains("pull request  MERGED"), "{lines:?}");
    world.finish().await;
}
