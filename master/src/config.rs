//! The master's configuration: built-in defaults, then a TOML file, then `POINTSMAN_MASTER__*` of the
//! environment, then flags. Unknown keys are errors, and everything is checked before a port is bound.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use config::{Environment, File, FileFormat};
use jiff::SignedDuration;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use crate::{
    domain::{
        attempt::SHORTEST_TTL_SECONDS,
        policy::{DEFAULT_FLAKE_RETRIES, MAX_FLAKE_RETRIES},
    },
    telemetry::Format,
};

/// What variables of the environment start with; `__` stands between the parts of a key.
const PREFIX: &str = "POINTSMAN_MASTER";

/// Names the default of `ci_flake_retries` by itself, as the state machine's documentation does.
const FLAKE_RETRIES: &str = "POINTSMAN_CI_FLAKE_RETRIES";

/// How the URL of a directory begins.
const FILE_URL: &str = "file://";

/// Bounds of what a log keeps: enough to see why something failed, and little enough to be read through.
const LEAST_LOG_BYTES: u64 = 64 * 1024;
const MOST_LOG_BYTES: u64 = 16 * 1024 * 1024 * 1024;

/// Most days that history and logs are kept: a century, for those who never want to lose it.
const MAX_DAYS: u32 = 36_500;

/// Time that a worker may take to find a master again within a lease.
const RECONNECT: Duration = Duration::from_secs(1);

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("read the configuration: {0}")]
    Read(#[from] config::ConfigError),
    #[error("{key} is {value}; {expected} is expected")]
    Value {
        key: &'static str,
        value: String,
        expected: String,
    },
}

/// The master's flags.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// TOML file with the configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to serve gRPC on; loopback alone, since there is no authentication yet.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Directory for the database, the clones of repositories, and the file `master.address`.
    #[arg(long, value_name = "DIRECTORY")]
    pub state_dir: Option<PathBuf>,
}

/// The configuration of a master, checked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Serves gRPC here. Port 0: any free one; `state_dir/master.address` says which.
    pub listen: SocketAddr,
    pub state_dir: PathBuf,
    /// A file with settings of git (`core.sshCommand`, `credential.helper`, `http.*`) that count where a remote
    /// is talked to. Nobody but its owner may write it. None: git's own defaults.
    pub git_config: Option<PathBuf>,
    /// Directives of `tracing_subscriber::EnvFilter`.
    pub log: String,
    pub log_format: Format,
    /// `ci_flake_retries` of new workflows whose repository does not say: 0 to 10.
    pub ci_flake_retries: u32,
    /// How often workers are to beat: 100 ms to 60 s. Half a minute of silence shows within it.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub beat_interval: Duration,
    /// How often beats are written: 10 ms to 10 s. One commit for all workers.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub flush_interval: Duration,
    /// Between looks for work that is missing: 100 ms to 1 h. Transitions add work by themselves.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub scheduler_interval: Duration,
    /// Between looks for leases that have run out: 100 ms to 1 h.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub reaper_interval: Duration,
    /// Between comparisons of all workflows with their forges: 100 ms to 24 h.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub reconciler_interval: Duration,
    /// Between looks for checks and effects that are due: 100 ms to 1 h.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub due_interval: Duration,
    /// Between looks for old history and refs that nobody needs: 100 ms to 24 h.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub retention_interval: Duration,
    /// How many days the history of a workflow is kept in the database after its end: 1 to 36500.
    pub history_days: u32,
    /// How many days the logs of an attempt are kept after its end: 1 to 36500.
    pub log_days: u32,
    /// Longest that calls in flight are waited for at the end: 0 s to 10 min.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub shutdown_grace: Duration,
    /// What harnesses print.
    pub logs: LogsConfig,
}

/// Where logs are kept, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogsConfig {
    /// `file://` and the absolute path of a directory. Empty: `logs` in the state directory.
    pub url: String,
    /// Bytes that one log keeps, of one lease: 64 KiB to 16 GiB. What a harness prints beyond is dropped.
    pub max_bytes: u64,
}

impl Default for LogsConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            max_bytes: 64 * 1024 * 1024,
        }
    }
}

impl LogsConfig {
    /// The directory that `url` names; `None` where it is empty.
    pub(crate) fn directory(&self) -> Result<Option<PathBuf>, Error> {
        if self.url.is_empty() {
            return Ok(None);
        }
        let path = self.url.strip_prefix(FILE_URL).filter(|path| {
            // Taken as it is: an escape would be taken for a part of a name.
            path.starts_with('/') && !path.contains(['%', '?', '#', '\0'])
        });
        match path {
            Some(path) => Ok(Some(PathBuf::from(path))),
            None => Err(Error::Value {
                key: "logs.url",
                value: self.url.clone(),
                expected:
                    "file:// and the absolute path of a directory, without escapes (no other \
                           storage is built in)"
                        .to_owned(),
            }),
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.directory()?;
        if (LEAST_LOG_BYTES..=MOST_LOG_BYTES).contains(&self.max_bytes) {
            return Ok(());
        }
        Err(Error::Value {
            key: "logs.max_bytes",
            value: self.max_bytes.to_string(),
            expected: format!("{LEAST_LOG_BYTES} to {MOST_LOG_BYTES}"),
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7433)),
            state_dir: PathBuf::from("pointsman-master"),
            git_config: None,
            log: "info".to_owned(),
            log_format: Format::Pretty,
            ci_flake_retries: DEFAULT_FLAKE_RETRIES,
            beat_interval: Duration::from_secs(10),
            flush_interval: Duration::from_secs(1),
            scheduler_interval: Duration::from_secs(5),
            reaper_interval: Duration::from_secs(5),
            reconciler_interval: Duration::from_secs(300),
            due_interval: Duration::from_secs(1),
            retention_interval: Duration::from_secs(3600),
            history_days: 90,
            log_days: 30,
            shutdown_grace: Duration::from_secs(10),
            logs: LogsConfig::default(),
        }
    }
}

impl Config {
    /// Puts the sources together, the later over the earlier, and checks every value.
    pub fn load(args: Args) -> Result<Self, Error> {
        let environment = Environment::with_prefix(PREFIX)
            .prefix_separator("__")
            .separator("__");
        Self::from_sources(args, environment, flake_retries_variable())
    }

    fn from_sources(
        args: Args,
        environment: Environment,
        flake_retries: Option<String>,
    ) -> Result<Self, Error> {
        let mut builder = config::Config::builder();
        if let Some(path) = &args.config {
            builder = builder.add_source(File::new(&path.to_string_lossy(), FileFormat::Toml));
        }
        builder = builder.add_source(environment);
        let flags = [
            ("listen", args.listen.map(|address| address.to_string())),
            ("state_dir", args.state_dir.as_deref().map(text)),
            ("ci_flake_retries", flake_retries),
        ];
        for (key, value) in flags {
            builder = builder.set_override_option(key, value)?;
        }
        let config: Self = builder.build()?.try_deserialize()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), Error> {
        if !self.listen.ip().is_loopback() {
            return Err(Error::Value {
                key: "listen",
                value: self.listen.to_string(),
                expected: "an address of the loopback interface (there is no authentication yet)"
                    .to_owned(),
            });
        }
        if self.ci_flake_retries > MAX_FLAKE_RETRIES {
            return Err(Error::Value {
                key: "ci_flake_retries",
                value: self.ci_flake_retries.to_string(),
                expected: format!("0 to {MAX_FLAKE_RETRIES}"),
            });
        }
        let days = [
            ("history_days", self.history_days),
            ("log_days", self.log_days),
        ];
        for (key, value) in days {
            if !(1..=MAX_DAYS).contains(&value) {
                return Err(Error::Value {
                    key,
                    value: value.to_string(),
                    expected: format!("1 to {MAX_DAYS}"),
                });
            }
        }
        self.filter()?;
        self.logs.check()?;
        if self.least_ttl_seconds() > SHORTEST_TTL_SECONDS {
            return Err(Error::Value {
                key: "beat_interval and flush_interval",
                value: format!("{} s for three beats", self.least_ttl_seconds()),
                expected: format!("at most {SHORTEST_TTL_SECONDS} s, the shortest time-to-live"),
            });
        }
        let ms = Duration::from_millis;
        let s = Duration::from_secs;
        let ranges = [
            ("beat_interval", self.beat_interval, ms(100), s(60)),
            ("flush_interval", self.flush_interval, ms(10), s(10)),
            (
                "scheduler_interval",
                self.scheduler_interval,
                ms(100),
                s(3600),
            ),
            ("reaper_interval", self.reaper_interval, ms(100), s(3600)),
            (
                "reconciler_interval",
                self.reconciler_interval,
                ms(100),
                s(86_400),
            ),
            ("due_interval", self.due_interval, ms(100), s(3600)),
            (
                "retention_interval",
                self.retention_interval,
                ms(100),
                s(86_400),
            ),
            ("shutdown_grace", self.shutdown_grace, s(0), s(600)),
        ];
        for (key, value, least, most) in ranges {
            if value < least || value > most {
                return Err(Error::Value {
                    key,
                    value: friendly(value),
                    expected: format!("{} to {}", friendly(least), friendly(most)),
                });
            }
        }
        Ok(())
    }

    /// What is logged.
    pub(crate) fn filter(&self) -> Result<EnvFilter, Error> {
        EnvFilter::try_new(&self.log).map_err(|error| Error::Value {
            key: "log",
            value: self.log.clone(),
            expected: format!("a filter such as info,pointsman_master=debug ({error})"),
        })
    }

    /// How long the history of a workflow is kept after its end.
    pub fn history(&self) -> Duration {
        days(self.history_days)
    }

    /// How long the logs of an attempt are kept after its end.
    pub fn log_retention(&self) -> Duration {
        days(self.log_days)
    }

    /// Least time-to-live of a lease, in whole seconds: it must outlast three beats with their flushes,
    /// and a reconnect.
    pub fn least_ttl_seconds(&self) -> u32 {
        let least = (self.beat_interval + self.flush_interval) * 3 + RECONNECT;
        u32::try_from(least.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
    }
}

fn days(n: u32) -> Duration {
    Duration::from_secs(u64::from(n) * 24 * 3600)
}

fn friendly(duration: Duration) -> String {
    SignedDuration::try_from(duration).map_or_else(
        |_| format!("{} s", duration.as_secs()),
        |duration| format!("{duration:#}"),
    )
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn flake_retries_variable() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "configuration is read here")]
    std::env::var(FLAKE_RETRIES).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn load(file: &str, variables: &[(&str, &str)], args: Args) -> Result<Config, Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("master.toml");
        std::fs::write(&path, file).unwrap();
        let variables: HashMap<String, String> = variables
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let environment = Environment::with_prefix(PREFIX)
            .prefix_separator("__")
            .separator("__")
            .source(Some(variables));
        let args = Args {
            config: Some(path),
            ..args
        };
        Config::from_sources(args, environment, None)
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(load("", &[], Args::default()).unwrap(), Config::default());
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = "listen = \"127.0.0.1:1\"\nstate_dir = \"file\"\nbeat_interval = \"2s\"\n";
        let variables = [
            ("POINTSMAN_MASTER__STATE_DIR", "environment"),
            ("POINTSMAN_MASTER__LISTEN", "127.0.0.1:2"),
        ];
        let args = Args {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 3))),
            ..Args::default()
        };
        let config = load(file, &variables, args).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.state_dir, PathBuf::from("environment"));
        assert_eq!(config.beat_interval, Duration::from_secs(2));
    }

    #[track_caller]
    fn refused(file: &str, parts: &[&str]) {
        let error = load(file, &[], Args::default()).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        refused("beat_intervall = \"1s\"", &["beat_intervall"]);
        refused(
            "beat_interval = \"1ms\"",
            &["beat_interval is 1ms", "100ms to 1m"],
        );
        refused(
            "ci_flake_retries = 11",
            &["ci_flake_retries is 11", "0 to 10"],
        );
        refused(
            "listen = \"0.0.0.0:7433\"",
            &["listen is 0.0.0.0:7433", "loopback"],
        );
        refused("log = \"a=b=c\"", &["log is a=b=c"]);
        refused("[logs]\nurll = \"\"", &["urll"]);
        for url in [
            "s3://bucket/logs",
            "file://host/logs",
            "logs",
            "file:///a%20b",
        ] {
            let parts = [&format!("logs.url is {url}"), "file://"];
            refused(&format!("[logs]\nurl = \"{url}\""), &parts);
        }
        for bytes in [LEAST_LOG_BYTES - 1, MOST_LOG_BYTES + 1] {
            let parts = [
                &format!("logs.max_bytes is {bytes}"),
                "65536 to 17179869184",
            ];
            refused(&format!("[logs]\nmax_bytes = {bytes}"), &parts);
        }
        refused("history_days = 0", &["history_days is 0", "1 to 36500"]);
        refused("history_days = 36501", &["history_days is 36501"]);
        refused("log_days = 0", &["log_days is 0", "1 to 36500"]);
        refused("log_days = 36501", &["log_days is 36501"]);
        refused(
            "beat_interval = \"60s\"",
            &["beat_interval", "at most 180 s"],
        );
    }

    #[test]
    fn logs_go_to_a_directory_up_to_their_bounds() {
        let file = format!("[logs]\nurl = \"file:///var/logs\"\nmax_bytes = {MOST_LOG_BYTES}");
        let variables = [("POINTSMAN_MASTER__LOGS__MAX_BYTES", "65536")];
        let config = load(&file, &variables, Args::default()).unwrap().logs;
        assert_eq!(config.max_bytes, LEAST_LOG_BYTES);
        let directory = config.directory().unwrap();
        assert_eq!(directory, Some(PathBuf::from("/var/logs")));
        assert_eq!(LogsConfig::default().directory().unwrap(), None);
    }

    #[test]
    fn the_least_ttl_outlasts_three_beats_and_a_reconnect() {
        assert_eq!(Config::default().least_ttl_seconds(), 34);
    }
}
