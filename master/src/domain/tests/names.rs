//! Names that are stored: an unknown one is an error, never a default.

use std::{collections::BTreeSet, fmt::Display, str::FromStr};

use super::*;
use crate::domain::{
    attempt::{AttemptStatus, InfrastructureClass, Role},
    ci::Conclusion,
    decision::Note,
    transitions::{Bound, Event, OutOfBand},
};

/// Each value is read back from its name, no two share one, and another case is unknown.
#[track_caller]
fn check_names<T>(all: &[T])
where
    T: Copy + Display + FromStr + PartialEq + std::fmt::Debug + serde::Serialize,
    T::Err: Display,
{
    let mut seen = BTreeSet::new();
    for value in all {
        let name = value.to_string();
        assert_eq!(T::from_str(&name).ok(), Some(*value));
        assert_eq!(serde_json::to_value(value).unwrap(), name.as_str());
        assert!(seen.insert(name.clone()), "{name} twice");
        let unknown = format!("{name} ");
        let error = T::from_str(&unknown).err().unwrap().to_string();
        assert!(error.contains(&format!("{unknown:?}")), "{error}");
    }
}

#[test]
fn names_are_unique_and_read_back_and_nothing_else_is() {
    check_names(State::ALL);
    check_names(Event::ALL);
    check_names(OutOfBand::ALL);
    check_names(Bound::ALL);
    check_names(Note::ALL);
    check_names(Kind::ALL);
    check_names(PausedBy::ALL);
    check_names(Role::ALL);
    check_names(AttemptStatus::ALL);
    check_names(InfrastructureClass::ALL);
    check_names(Conclusion::ALL);
}

#[test]
fn an_unknown_state_is_an_error_that_names_it() {
    let error = "REVIEWED".parse::<State>().unwrap_err();
    assert_eq!(error.to_string(), "unknown workflow state \"REVIEWED\"");
    assert!(serde_json::from_str::<State>("\"REVIEWED\"").is_err());
}

#[test]
fn events_notes_and_out_of_band_events_share_no_name() {
    let names: Vec<_> = (Event::ALL.iter().map(|e| e.as_str()))
        .chain(OutOfBand::ALL.iter().map(|e| e.as_str()))
        .chain(Note::ALL.iter().map(|e| e.as_str()))
        .collect();
    let unique: BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
}

#[track_caller]
fn check_commit(text: &str, is_valid: bool) {
    assert_eq!(text.parse::<CommitId>().is_ok(), is_valid, "{text:?}");
    let json = serde_json::to_string(text).unwrap();
    let stored = serde_json::from_str::<CommitId>(&json);
    assert_eq!(stored.is_ok(), is_valid, "stored {text:?}");
}

#[test]
fn a_commit_is_40_or_64_lower_case_hexadecimal_digits() {
    check_commit(&"0123456789abcdef".repeat(4), true);
    check_commit(&"a".repeat(40), true);
    for length in [0, 7, 39, 41, 63, 65] {
        check_commit(&"a".repeat(length), false);
    }
    check_commit(&"A".repeat(40), false);
    check_commit(&"g".repeat(40), false);
    check_commit(&format!("{} ", "a".repeat(39)), false);
    // Twenty letters of two bytes: the right length, but no digits.
    check_commit(&"é".repeat(20), false);
    check_commit("HEAD", false);
}

#[test]
fn instants_saturate_instead_of_wrapping() {
    use std::time::Duration;
    assert_eq!(Timestamp(1).after(Duration::MAX), Timestamp(i64::MAX));
    assert_eq!(Timestamp(5).after(Duration::from_micros(7)), Timestamp(12));
    assert_eq!(Timestamp(-2).before(Duration::MAX), Timestamp(i64::MIN));
    assert_eq!(Timestamp(5).before(Duration::from_micros(7)), Timestamp(-2));
    assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    assert_eq!(Timestamp(9).since(Timestamp(5)), Duration::from_micros(4));
    let longest = Timestamp(i64::MAX).since(Timestamp(i64::MIN));
    assert_eq!(longest, Duration::from_micros(i64::MAX.unsigned_abs()));
}

#[test]
fn kept_texts_are_cut_at_their_edge_with_a_mark() {
    use crate::domain::workflow::{MAX_FACT_BYTES, kept_text};

    let edge = "x".repeat(MAX_FACT_BYTES);
    assert_eq!(kept_text(edge.clone()), edge);
    for long in [format!("{edge}y"), "é".repeat(MAX_FACT_BYTES)] {
        let cut = kept_text(long);
        assert!(cut.len() <= MAX_FACT_BYTES, "{}", cut.len());
        assert!(cut.ends_with("… (cut)"), "{cut}");
    }
}
