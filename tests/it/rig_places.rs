//! What happens to a workflow at each place where it can be: pauses, and ends of its item.

use std::time::Duration;

use pointsman_master::{
    domain::{
        decision::{LabelState, Running},
        transitions::State,
        workflow::{Kind, PausedBy},
    },
    service::{Change, Error},
    sweeps::Sweep,
};
use pointsman_tests::rig::{
    BASE, FakeWorker, ask,
    place::{Doing, PLACES, Place, Scene},
};

/// Longer than every time-to-live.
const TTL: Duration = Duration::from_secs(2 * 3600);

#[test]
fn every_state_that_is_not_over_is_a_place() {
    for &state in State::ALL {
        let is_place = PLACES.iter().any(|place| place.state == state);
        assert_eq!(is_place, state.can_be_paused(), "{state}");
    }
}

/// How it comes to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// Behind the master's back: the next poll sees it.
    Label,
    Operator,
    OperatorCancels,
}

impl Pause {
    async fn begin(self, scene: &Scene) {
        match self {
            Self::Label => {
                scene.rig.set_labelled(scene.id, LabelState::Absent).await;
                scene.rig.reconcile().await;
            }
            Self::Operator => scene.pause(Running::Left).await,
            Self::OperatorCancels => scene.pause(Running::Cancelled).await,
        }
    }

    async fn end(self, scene: &Scene) {
        match self {
            Self::Label => {
                scene.rig.set_labelled(scene.id, LabelState::Present).await;
                scene.rig.reconcile().await;
            }
            Self::Operator | Self::OperatorCancels => {
                let resumed = scene.rig.service().resume(ask(scene.id, "go on")).await;
                assert!(resumed.expect("it is resumed").is_changed());
                let again = scene.rig.service().resume(ask(scene.id, "go on")).await;
                assert!(matches!(again, Ok(Change::Unchanged(_))), "{again:?}");
            }
        }
    }

    fn by(self) -> PausedBy {
        match self {
            Self::Label => PausedBy::Label,
            Self::Operator | Self::OperatorCancels => PausedBy::Operator,
        }
    }
}

/// paperclip#8317 and #1063, sloppenheimer-ts#263, aion#203, chippingway/orchestrator#698: a start that
/// clobbers the pause, retries that ignore it, and an agent that still pushes and opens its pull request.
async fn check_pause(place: Place, pause: Pause) {
    let scene = Scene::at(place).await;
    let before = scene.progress().await;
    pause.begin(&scene).await;
    scene.rests().await;
    let said = scene.finish().await;
    if pause == Pause::OperatorCancels {
        assert!(
            matches!(said, Some(Err(Error::LeaseLost { .. }))),
            "{said:?}"
        );
    } else if let Some(said) = said {
        said.expect("what was paid for is kept");
    }
    scene.rests().await;
    let paused = scene.progress().await;
    assert_eq!(paused.state, State::Paused, "{place:?}");
    let rest = paused.pause.expect("it is paused");
    assert_eq!(rest.by, pause.by(), "{place:?}");
    let is_as_before = place.doing != Doing::Leased || pause == Pause::OperatorCancels;
    if is_as_before {
        assert_eq!(rest.was, place.state);
        assert_eq!(
            (paused.tier, paused.counters, &paused.head, &paused.facts),
            (before.tier, before.counters, &before.head, &before.facts),
            "{place:?}"
        );
    }
    if place.state == State::Discovered {
        let other = scene.rig.workflows().await[0].workflow.id;
        let _over_or_not = scene.rig.service().abandon(ask(other, "make room")).await;
    }
    pause.end(&scene).await;
    let resumed = scene.progress().await;
    // Where there is room by now, it is admitted at once.
    if rest.was != State::Discovered {
        assert_eq!(resumed.state, rest.was, "{place:?}");
    }
    assert_eq!(resumed.pause, None);
    if is_as_before && place.state != State::Discovered {
        assert_eq!(
            (&resumed.head, &resumed.facts),
            (&before.head, &before.facts)
        );
    }
    scene.goes_on().await;
    assert_eq!(scene.rig.history().await.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_label_stops_everything_at_every_place_until_it_is_back() {
    for place in PLACES {
        check_pause(place, Pause::Label).await;
    }
}

#[tokio::test]
async fn an_operators_pause_stops_everything_at_every_place_until_the_resume() {
    for place in PLACES {
        check_pause(place, Pause::Operator).await;
    }
}

#[tokio::test]
async fn a_pause_that_cancels_ends_what_runs_and_its_work_is_done_anew() {
    for place in PLACES {
        if place.doing == Doing::Leased {
            check_pause(place, Pause::OperatorCancels).await;
        }
    }
}

/// fabrik ADR-053, 054 and 1460: a paused item whose pull request a person merged stayed paused for ever.
#[tokio::test]
async fn the_end_of_a_paused_item_wins_over_the_pause_at_every_place() {
    for place in PLACES {
        let scene = Scene::at(place).await;
        scene.pause(Running::Left).await;
        scene.rig.set_open(scene.id, false).await;
        scene.rig.reconcile().await;
        assert_eq!(
            scene.rig.state(scene.id).await,
            State::Abandoned,
            "{place:?}"
        );
        scene.check_nothing_is_left().await;
        scene.rests().await;
    }
    for place in PLACES.iter().filter(|p| p.kind == Kind::PullRequest) {
        let scene = Scene::at(*place).await;
        scene.rig.label(scene.id, LabelState::Absent).await;
        let branch = scene.rig.row(scene.id).await.workflow.head_ref.clone();
        let head = scene.rig.remote.tip(&branch).await.expect("it is there");
        let base = scene.rig.remote.tip(BASE).await.expect("it is there");
        let merge = scene.rig.remote.commit_of(&[&base, &head], &[]).await;
        scene.rig.remote.put(BASE, &merge).await;
        scene.rig.reconcile().await;
        let progress = scene.progress().await;
        assert_eq!(progress.state, State::Merged, "{place:?}");
        assert!(progress.merged_commit.is_some(), "{place:?}");
        scene.check_nothing_is_left().await;
    }
}

/// handarbeit/fabrik#1387: a closed item was dispatched 87 times in 14 hours. Closed is seen before each
/// lease, whichever sweep has had its turn or not.
#[tokio::test]
async fn nothing_of_a_closed_item_is_leased_at_any_place() {
    for place in PLACES {
        let scene = Scene::at(place).await;
        let n_leases = scene.n_leases().await;
        scene.rig.set_open(scene.id, false).await;
        scene.rests().await;
        scene.rests().await;
        assert_eq!(scene.n_leases().await, n_leases, "{place:?}");
        assert_eq!(
            scene.rig.state(scene.id).await,
            State::Abandoned,
            "{place:?}"
        );
        if let Some(said) = scene.finish().await {
            assert!(matches!(said, Err(Error::LeaseLost { .. })), "{said:?}");
        }
        scene.check_nothing_is_left().await;
    }
}

/// What happens to the item between the end of a lease and the next one.
async fn check_re_lease(place: Place, change: Option<(bool, LabelState)>, end: State) {
    let scene = Scene::at(place).await;
    scene.rig.turn().await;
    scene.rig.advance(TTL);
    let reaped = scene.rig.master.reaper.run_once().await;
    assert_eq!(reaped.expect("it reaps").changed, 1, "{place:?}");
    // Past every backoff.
    scene.rig.advance(TTL);
    if let Some((is_open, label)) = change {
        scene.rig.set_open(scene.id, is_open).await;
        scene.rig.set_labelled(scene.id, label).await;
    }
    let next = FakeWorker::registered(&scene.rig, "next").await;
    let n_leased = next.lease(&scene.rig, 10).await.len();
    let is_wanted = change.is_none();
    assert_eq!(n_leased, usize::from(is_wanted), "{place:?} {change:?}");
    assert_eq!(scene.rig.state(scene.id).await, end, "{place:?} {change:?}");
    assert_eq!(scene.rig.history().await.faults(), Vec::<String>::new());
}

/// gastownhall/gastown#4698 and #3998: a dead worker's work was taken up again although its item had been
/// closed meanwhile.
#[tokio::test]
async fn what_is_closed_or_unlabelled_after_its_lease_expired_is_not_leased_again() {
    let leased = PLACES.iter().filter(|place| place.doing == Doing::Leased);
    for &place in leased {
        let closed = Some((false, LabelState::Present));
        check_re_lease(place, closed, State::Abandoned).await;
        let unlabelled = Some((true, LabelState::Absent));
        check_re_lease(place, unlabelled, State::Paused).await;
    }
    // And it is leased where nothing happened to it.
    let place = PLACES[2];
    check_re_lease(place, None, place.state).await;
}
