//! What the table holds, and what is read off it.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{
    transitions::{
        Bound, Event, IllegalTransition, State, TABLE, apply_event, events_from, reachable_from,
    },
    workflow::Kind,
};

#[test]
fn the_table_has_52_entries_and_32_events() {
    assert_eq!(TABLE.len(), 52);
    assert_eq!(Event::ALL.len(), 32);
}

#[test]
fn thirteen_states_four_of_them_terminal() {
    assert_eq!(State::ALL.len(), 13);
    let terminal: Vec<_> = State::ALL.iter().filter(|s| s.is_terminal()).collect();
    assert_eq!(
        terminal,
        [
            &State::Merged,
            &State::CreatedPr,
            &State::Abandoned,
            &State::Stuck
        ]
    );
}

#[test]
fn five_states_have_an_attempt() {
    let roles: Vec<_> = State::ALL
        .iter()
        .filter_map(|state| state.role().map(|role| (state.as_str(), role.as_str())))
        .collect();
    assert_eq!(
        roles,
        [
            ("ANALYZING", "estimator"),
            ("IMPLEMENTING", "implementer"),
            ("CONFLICT_RESOLVING", "conflict_resolver"),
            ("ESCALATING", "escalator"),
            ("REVIEWING", "reviewer"),
        ]
    );
}

#[test]
fn each_event_is_used() {
    let used: BTreeSet<_> = TABLE.iter().map(|row| row.event).collect();
    assert_eq!(used, Event::ALL.iter().copied().collect());
}

#[test]
fn no_event_has_two_rows_for_one_kind_in_one_state() {
    for &kind in Kind::ALL {
        let mut rows = BTreeMap::new();
        for row in TABLE
            .iter()
            .filter(|row| row.only.is_none_or(|k| k == kind))
        {
            *rows.entry((row.from, row.event)).or_insert(0) += 1;
        }
        let twice: Vec<_> = rows.into_iter().filter(|(_, count)| *count > 1).collect();
        assert!(twice.is_empty(), "{kind}: {twice:?}");
    }
}

#[test]
fn the_bounded_rows_are_those_of_the_design() {
    let bounded: Vec<_> = TABLE
        .iter()
        .filter_map(|row| row.bound.map(|bound| (row.event, bound)))
        .collect();
    assert_eq!(
        bounded,
        [
            (Event::CiRedFixable, Bound::CiRedRounds),
            (Event::CiFlakeRetry, Bound::CiFlakeRetries),
            (Event::ConflictRoundFirst, Bound::ConflictRounds),
            (Event::ConflictRoundSecond, Bound::ConflictRounds),
            (Event::ConflictRoundsExhausted, Bound::ConflictRounds),
            (Event::EscalationTierRaised, Bound::Tier),
            (Event::ReviewChangesRequested, Bound::ReviewRounds),
            (Event::HeadMoved, Bound::HeadMoves),
            (Event::MergeBlocked, Bound::MergeRounds),
        ]
    );
}

#[test]
fn rows_3_and_6_are_for_pull_requests_and_row_7_for_issues() {
    let of_one_kind: Vec<_> = TABLE
        .iter()
        .filter_map(|row| row.only.map(|kind| (row.event, kind)))
        .collect();
    assert_eq!(
        of_one_kind,
        [
            (Event::AnalysisChangePresent, Kind::PullRequest),
            (Event::ChangePushed, Kind::PullRequest),
            (Event::PrCreated, Kind::Issue),
        ]
    );
}

#[test]
fn discovered_reaches_itself_through_stuck() {
    for &kind in Kind::ALL {
        let reached = reachable_from(TABLE, kind, State::Discovered);
        assert!(reached.contains(&State::Discovered), "{kind}");

        let no_way_back: Vec<_> = TABLE
            .iter()
            .filter(|row| row.event != Event::OperatorUnstick)
            .copied()
            .collect();
        let reached = reachable_from(&no_way_back, kind, State::Discovered);
        assert!(!reached.contains(&State::Discovered), "{kind}");
    }
}

#[test]
fn a_state_without_exits_reaches_nothing() {
    assert_eq!(reachable_from(TABLE, Kind::Issue, State::Abandoned), []);
}

#[test]
fn events_from_lists_the_rows_of_the_kind_alone() {
    use Event as E;
    let common = [E::PickupExhausted, E::BudgetExhausted, E::UpstreamClosed];
    let mut of_issue = vec![E::PrCreated, E::ImplementationFailed, E::ConflictDetected];
    of_issue.extend(common);
    assert_eq!(events_from(Kind::Issue, State::Implementing), of_issue);
    let mut of_pull_request = vec![
        E::ChangePushed,
        E::ImplementationFailed,
        E::ConflictDetected,
    ];
    of_pull_request.extend(common);
    assert_eq!(
        events_from(Kind::PullRequest, State::Implementing),
        of_pull_request
    );
}

#[test]
fn an_event_without_a_row_is_an_error_that_lists_the_legal_ones() {
    let error = apply_event(Kind::Issue, State::Discovered, Event::CiGreen).unwrap_err();
    assert_eq!(
        error,
        IllegalTransition {
            kind: Kind::Issue,
            state: State::Discovered,
            event: Event::CiGreen,
            legal: vec![Event::AnalysisScheduled, Event::UpstreamClosed],
        }
    );
    assert_eq!(
        error.to_string(),
        "ci_green is not legal for issue in DISCOVERED; \
         legal there: analysis_scheduled, upstream_closed"
    );
}

#[test]
fn where_nothing_is_legal_the_error_says_so() {
    let error = apply_event(Kind::Issue, State::Merged, Event::CiGreen).unwrap_err();
    assert!(error.to_string().ends_with("legal there: none"), "{error}");
}

#[test]
fn each_row_is_applied_for_its_kinds_and_no_other() {
    for row in TABLE {
        for &kind in Kind::ALL {
            let applied = apply_event(kind, row.from, row.event).ok();
            let expected = row.only.is_none_or(|only| only == kind).then_some(row.to);
            assert_eq!(applied, expected, "{kind} {row:?}");
        }
    }
}
