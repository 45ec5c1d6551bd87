//! Turns the configuration as written into one that can't be wrong.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use jiff::SignedDuration;

use super::{
    Config, Environment, Error, OWN_PREFIX,
    raw::{Raw, RawProfile},
};
use crate::{
    assignment::Role,
    harness::profile::{Limits, Profile, Variable},
    master::Address,
    process::host,
    telemetry,
};

/// What Register takes.
const CAPACITY: RangeInclusive<u32> = 1..=1000;
const TIER: RangeInclusive<u32> = 1..=1000;
/// As a master has it: enough to see why something failed, and little enough to be read through.
const LOG_MAX_BYTES: RangeInclusive<u64> = 64 * 1024..=16 * 1024 * 1024 * 1024;
const NAME_MAX: usize = 200;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A grace counts against every lease's time-to-live.
const GRACE_MAX: Duration = Duration::from_secs(300);

/// Where programs are where the agent has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Set by the worker itself in each harness, so that no profile can pass them on.
const OWN_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TERM", "TMPDIR"];

pub(super) fn check(raw: Raw, environment: &Environment) -> Result<Config, Error> {
    let host = host::hostname();
    let term_grace = duration("term_grace", &raw.term_grace, Duration::ZERO, GRACE_MAX)?;
    let profiles = raw
        .harness
        .iter()
        .map(|(name, profile)| check_profile(name, profile, term_grace, environment))
        .collect::<Result<_, _>>()?;
    let config = Config {
        masters: masters(&raw.masters)?,
        state_dir: state_dir(raw.state_dir)?,
        git_config: raw.git_config,
        name: name(raw.name.unwrap_or(host))?,
        capacity: capacity(raw.capacity)?,
        roles: match &raw.roles {
            Some(names) => roles("roles", names)?,
            None => Role::ALL.to_vec(),
        },
        labels: raw.labels,
        drain_grace: duration("drain_grace", &raw.drain_grace, Duration::ZERO, DAY)?,
        profiles,
        ci_limits: Limits {
            timeout: duration("ci_timeout", &raw.ci_timeout, SECOND, DAY)?,
            idle_timeout: None,
            exit_grace: None,
            grace: term_grace,
        },
        ci_variables: variables("ci_env", &raw.ci_env, environment)?,
        log_max_bytes: log_max_bytes(raw.log_max_bytes)?,
        path: environment.get("PATH").unwrap_or(DEFAULT_PATH).to_owned(),
        telemetry: telemetry::Config {
            filter: filter(environment.get("POINTSMAN_LOG").unwrap_or(&raw.log))?,
            format: one_of("log_format", &raw.log_format)?,
        },
    };
    has_work(&config)?;
    Ok(config)
}

fn check_profile(
    name: &str,
    raw: &RawProfile,
    term_grace: Duration,
    environment: &Environment,
) -> Result<Profile, Error> {
    let key = |field: &str| format!("harness.{name}.{field}");
    if raw.command.first().is_none_or(String::is_empty) {
        return Err(invalid(
            &key("command"),
            "needs a program, then its arguments",
        ));
    }
    if raw.command.iter().any(|part| part.contains('\0')) {
        return Err(invalid(&key("command"), "holds a zero byte"));
    }
    let roles = roles(&key("roles"), &raw.roles)?;
    if roles.contains(&Role::Ci) {
        return Err(invalid(
            &key("roles"),
            "ci has no harness: its command is run as it is",
        ));
    }
    if !raw.tiers.iter().all(|tier| TIER.contains(tier)) {
        let (low, high) = (TIER.start(), TIER.end());
        let problem = format!("takes tiers from {low} to {high}; none means all");
        return Err(invalid(&key("tiers"), &problem));
    }
    let idle_timeout = duration(&key("idle_timeout"), &raw.idle_timeout, Duration::ZERO, DAY)?;
    let grace = match &raw.grace {
        Some(grace) => duration(&key("grace"), grace, Duration::ZERO, GRACE_MAX)?,
        None => term_grace,
    };
    Ok(Profile {
        name: name.to_owned(),
        command: raw.command.clone(),
        prompt: one_of(&key("prompt"), &raw.prompt)?,
        roles,
        tiers: raw.tiers.clone(),
        variables: variables(&key("env"), &raw.env, environment)?,
        account: account(&key("account"), raw.account.as_deref().unwrap_or(name))?,
        limits: Limits {
            timeout: duration(&key("timeout"), &raw.timeout, SECOND, DAY)?,
            idle_timeout: (!idle_timeout.is_zero()).then_some(idle_timeout),
            exit_grace: Some(duration(&key("exit_grace"), &raw.exit_grace, SECOND, DAY)?),
            grace,
        },
    })
}

fn masters(urls: &[String]) -> Result<Vec<Address>, Error> {
    let addresses: Vec<_> = urls
        .iter()
        .map(|url| address(url))
        .collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(invalid(
            "masters",
            "needs at least one URL, as http://127.0.0.1:7433",
        ));
    }
    Ok(addresses)
}

fn address(url: &str) -> Result<Address, Error> {
    Address::parse(url)
        .ok_or_else(|| invalid("masters", &format!("takes http://HOST:PORT, not {url:?}")))
}

/// Absolute, since harnesses run in other directories.
fn state_dir(path: Option<PathBuf>) -> Result<PathBuf, Error> {
    let path = path.ok_or_else(|| invalid("state_dir", "needs a directory"))?;
    let path = std::path::absolute(&path)
        .map_err(|error| invalid("state_dir", &format!("{}: {error}", path.display())))?;
    let is_usable = |path: &Path| {
        path.to_str()
            .is_some_and(|text| !text.contains(['\n', '"', ':', '\0']))
    };
    if is_usable(&path) {
        Ok(path)
    } else {
        Err(invalid(
            "state_dir",
            "takes Unicode without line ends, quotes and colons, which git can't have in its lists of paths",
        ))
    }
}

fn name(name: String) -> Result<String, Error> {
    if (1..=NAME_MAX).contains(&name.len()) {
        Ok(name)
    } else {
        Err(invalid("name", &format!("takes 1 to {NAME_MAX} bytes")))
    }
}

fn account(key: &str, account: &str) -> Result<String, Error> {
    let is_line = !account.trim().is_empty() && !account.chars().any(char::is_control);
    if is_line && account.len() <= NAME_MAX {
        Ok(account.to_owned())
    } else {
        Err(invalid(
            key,
            &format!("takes 1 to {NAME_MAX} bytes on one line"),
        ))
    }
}

fn capacity(capacity: u32) -> Result<u32, Error> {
    if CAPACITY.contains(&capacity) {
        Ok(capacity)
    } else {
        let (low, high) = (CAPACITY.start(), CAPACITY.end());
        Err(invalid(
            "capacity",
            &format!("takes {low} to {high}, not {capacity}"),
        ))
    }
}

fn log_max_bytes(bytes: u64) -> Result<u64, Error> {
    if LOG_MAX_BYTES.contains(&bytes) {
        Ok(bytes)
    } else {
        let (low, high) = (LOG_MAX_BYTES.start(), LOG_MAX_BYTES.end());
        Err(invalid(
            "log_max_bytes",
            &format!("takes {low} to {high}, not {bytes}"),
        ))
    }
}

fn roles(key: &str, names: &[String]) -> Result<Vec<Role>, Error> {
    let mut roles = names
        .iter()
        .map(|name| one_of(key, name))
        .collect::<Result<Vec<Role>, _>>()?;
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        return Err(invalid(key, "needs at least one role"));
    }
    Ok(roles)
}

fn one_of<T: ValueEnum>(key: &str, word: &str) -> Result<T, Error> {
    T::from_str(word, false).map_err(|_| {
        let words: Vec<_> = T::value_variants()
            .iter()
            .filter_map(|variant| variant.to_possible_value())
            .map(|value| value.get_name().to_owned())
            .collect();
        invalid(key, &format!("takes {}, not {word:?}", words.join(", ")))
    })
}

/// A worker that could never be given anything is a mistake in the configuration.
fn has_work(config: &Config) -> Result<(), Error> {
    let has_profile = |role: &Role| config.profiles.iter().any(|p| p.roles.contains(role));
    let can_work = config
        .roles
        .iter()
        .any(|role| *role == Role::Ci || has_profile(role));
    if can_work {
        Ok(())
    } else {
        Err(invalid(
            "harness",
            "no profile for any of the worker's roles",
        ))
    }
}

fn variables(
    key: &str,
    names: &[String],
    environment: &Environment,
) -> Result<Vec<Variable>, Error> {
    names
        .iter()
        .map(|name| {
            if OWN_VARIABLES.contains(&name.as_str()) || name.starts_with(OWN_PREFIX) {
                return Err(invalid(key, &format!("{name} is set by the worker itself")));
            }
            let value = environment
                .get(name)
                .ok_or_else(|| invalid(key, &format!("{name} is not in the environment")))?;
            Ok(Variable {
                name: name.clone(),
                value: value.to_owned(),
            })
        })
        .collect()
}

fn filter(directives: &str) -> Result<String, Error> {
    tracing_subscriber::EnvFilter::try_new(directives)
        .map(|_| directives.to_owned())
        .map_err(|error| invalid("log", &format!("takes a level or directives: {error}")))
}

fn duration(key: &str, text: &str, low: Duration, high: Duration) -> Result<Duration, Error> {
    let parsed = text
        .parse::<SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| (low..=high).contains(duration));
    parsed.ok_or_else(|| {
        let (low, high) = (low.as_secs(), high.as_secs());
        invalid(
            key,
            &format!(
                "takes a duration from {low}s to {high}s, as \"90m\" or \"15s\", not {text:?}"
            ),
        )
    })
}

fn invalid(key: &str, problem: &str) -> Error {
    Error::Invalid {
        key: key.to_owned(),
        problem: problem.to_owned(),
    }
}
