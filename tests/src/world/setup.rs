//! What a world is made of.

use std::path::PathBuf;

use pointsman_proto::v1::{LeaseTtl, Policy, Role};

/// The programs that are run: those that the build of the tests has just made.
#[derive(Debug, Clone)]
pub struct Programs {
    pub pointsman: PathBuf,
    pub stub_harness: PathBuf,
}

/// How a world differs from the plain one.
#[derive(Debug, Clone)]
pub struct Setup {
    pub policy: Policy,
    /// Command of the one check. `{gates}` stands for the directory of the gates.
    pub ci: String,
    pub workers: Vec<WorkerSetup>,
    /// Variables of the master's environment.
    pub master_variables: Vec<(String, String)>,
}

/// One worker.
#[derive(Debug, Clone)]
pub struct WorkerSetup {
    pub name: String,
    pub roles: Vec<Role>,
    pub capacity: u32,
    /// As in the configuration: `90m`.
    pub timeout: String,
    pub idle_timeout: String,
    pub drain_grace: String,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            ci: "true".to_owned(),
            workers: vec![WorkerSetup::named("worker-1")],
            master_variables: Vec::new(),
        }
    }
}

impl Setup {
    /// A check that waits at the gate `ci`.
    #[must_use]
    pub fn with_gated_ci(mut self) -> Self {
        self.ci = ": > {gates}/ci.reached; until [ -e {gates}/ci ]; do sleep 0.02; done".to_owned();
        self
    }

    /// A check that is red until the gate `green` is open.
    #[must_use]
    pub fn with_red_ci(mut self) -> Self {
        self.ci = "test -e {gates}/green".to_owned();
        self
    }

    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    #[must_use]
    pub fn with_workers(mut self, workers: impl IntoIterator<Item = WorkerSetup>) -> Self {
        self.workers = workers.into_iter().collect();
        self
    }

    #[must_use]
    pub fn with_master_variable(mut self, name: &str, value: &str) -> Self {
        self.master_variables
            .push((name.to_owned(), value.to_owned()));
        self
    }
}

impl WorkerSetup {
    /// A worker for every role.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            roles: vec![
                Role::Estimator,
                Role::Implementer,
                Role::Reviewer,
                Role::ConflictResolver,
                Role::Escalator,
                Role::Ci,
            ],
            capacity: 2,
            timeout: "10m".to_owned(),
            idle_timeout: "10m".to_owned(),
            drain_grace: "0s".to_owned(),
        }
    }

    #[must_use]
    pub fn with_roles(mut self, roles: &[Role]) -> Self {
        self.roles = roles.to_vec();
        self
    }
}

/// Leases of one role that live for so long.
pub fn lease_ttl(role: Role, seconds: u32) -> LeaseTtl {
    LeaseTtl {
        role: role.into(),
        tier: 0,
        seconds,
    }
}
