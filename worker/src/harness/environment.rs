//! The environment of a harness, made from nothing.
//!
//! No variable of the agent gets in but those that the profile names: neither its credentials nor its
//! configuration.

use std::{ffi::OsString, path::Path};

use super::profile::Variable;
use crate::{
    assignment::{Commit, Job, LeaseKey},
    process::cookie::Cookie,
    sidecar::SessionDir,
};

/// The environment of the harness of `key`, complete. `path` is the agent's own search path, since
/// that is where the host's programs are, and `base` the tip of the base branch.
pub(crate) fn environment(
    key: &LeaseKey,
    job: &Job,
    base: Option<&Commit>,
    directory: &SessionDir,
    temporary: &Path,
    path: &str,
    variables: &[Variable],
) -> Vec<(String, OsString)> {
    let text = |name: &str, value: &str| (name.to_owned(), OsString::from(value));
    let file = |name: &str, path: &Path| (name.to_owned(), path.as_os_str().to_owned());
    let mut environment: Vec<_> = variables
        .iter()
        .map(|variable| text(&variable.name, &variable.value))
        .collect();
    environment.extend([
        text("PATH", path),
        text("LANG", "C.UTF-8"),
        text("TERM", "dumb"),
        file("HOME", &directory.home()),
        file("TMPDIR", temporary),
        // The name holds the attempt, so that a worker inside of a harness doesn't overwrite it.
        text(&cookie_name(key), key.nonce()),
        text("POINTSMAN_ATTEMPT_ID", &key.attempt_id.to_string()),
        text("POINTSMAN_ROLE", job.role().name()),
        text("POINTSMAN_TIER", &job.tier().to_string()),
        file("POINTSMAN_PROMPT_FILE", &directory.prompt()),
        file("POINTSMAN_RESULT_FILE", &directory.result()),
    ]);
    environment.extend(base.map(|base| text("POINTSMAN_BASE_COMMIT", base.as_str())));
    environment
}

/// The variable by which all processes of the harness of `key` are known, wherever they went.
pub(crate) fn cookie(key: &LeaseKey) -> Cookie {
    Cookie::new(&cookie_name(key), key.nonce())
}

/// No hyphens: a shell drops variables with those.
fn cookie_name(key: &LeaseKey) -> String {
    format!("POINTSMAN_ATTEMPT_{}", key.attempt_id.simple())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::assignment::Role;

    #[test]
    fn the_environment_is_exactly_the_list() {
        let key = LeaseKey::new(Uuid::from_u128(0xabc), 3, &"01".repeat(16)).unwrap();
        let job = Job::Harness {
            role: Role::ConflictResolver,
            tier: 2,
            profile: "p".to_owned(),
        };
        let variables = [Variable {
            name: "API_KEY".to_owned(),
            value: "secret".to_owned(),
        }];
        let directory = SessionDir::new("/s");
        let temporary = Path::new("/t/0101");
        let base = Commit::new(&"b".repeat(40));
        let base = base.as_ref();
        let environment = environment(&key, &job, base, &directory, temporary, "/bin", &variables);
        let environment: BTreeMap<_, _> = environment
            .into_iter()
            .map(|(name, value)| (name, value.into_string().unwrap()))
            .collect();
        let expected = [
            ("API_KEY", "secret"),
            ("HOME", "/s/home"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/bin"),
            (
                "POINTSMAN_ATTEMPT_00000000000000000000000000000abc",
                "01010101010101010101010101010101",
            ),
            (
                "POINTSMAN_ATTEMPT_ID",
                "00000000-0000-0000-0000-000000000abc",
            ),
            (
                "POINTSMAN_BASE_COMMIT",
                "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
            ),
            ("POINTSMAN_PROMPT_FILE", "/s/prompt.md"),
            ("POINTSMAN_RESULT_FILE", "/s/result.json"),
            ("POINTSMAN_ROLE", "conflict_resolver"),
            ("POINTSMAN_TIER", "2"),
            ("TERM", "dumb"),
            ("TMPDIR", "/t/0101"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(environment, BTreeMap::from(expected));
    }

    #[test]
    fn debug_output_hides_values() {
        let variable = Variable {
            name: "API_KEY".to_owned(),
            value: "secret".to_owned(),
        };
        assert_eq!(format!("{variable:?}"), "API_KEY=…");
    }
}
