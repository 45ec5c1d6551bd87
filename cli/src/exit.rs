//! Exit codes: what a script can tell apart. `docs/operations.md` has the same list.

use std::process::ExitCode;

/// How the program ended. The numbers are documented in `pointsman --help` and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Unreachable = 5,
    Ended = 6,
}

/// The part of the long help that documents them.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  it failed
  2  bad usage, or an argument that the master does not accept
  3  not found
  4  refused in the present state (not allowed now, changed meanwhile, or there already)
  5  the master can't be reached, or can't answer now
  6  what was watched until its end, or worked on by `up --until-done`, ended without a merge

Errors are one line on standard error. With `-o json` standard output is one JSON document, or one on
each line where a command follows what changes (`watch`, `events -f`, `up`): keys in snake_case, enums by their short names (AWAITING_CI, PULL_REQUEST, IMPLEMENTER), instants in
RFC 3339 and UTC, null where there is nothing. Keys may be added, none is removed or renamed.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_and_the_guide_name_every_code() {
        let guide = include_str!("../../docs/operations.md");
        let codes = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::Refused,
            Exit::Unreachable,
            Exit::Ended,
        ];
        for code in codes {
            assert!(HELP.contains(&format!("\n  {}  ", code as u8)), "{code:?}");
            assert!(
                guide.contains(&format!("\n| {} | ", code as u8)),
                "{code:?}"
            );
        }
    }
}
