//! The configurations of a world's processes: as in production, with shorter intervals.

use std::{net::SocketAddr, path::Path};

use pointsman_proto::v1::Role;

use super::setup::WorkerSetup;

/// A master's configuration.
pub(super) fn master(listen: SocketAddr, state: &Path) -> String {
    format!(
        "\
listen = \"{listen}\"
state_dir = {state}
beat_interval = \"200ms\"
flush_interval = \"50ms\"
scheduler_interval = \"200ms\"
reaper_interval = \"200ms\"
reconciler_interval = \"1s\"
due_interval = \"100ms\"
shutdown_grace = \"3s\"
",
        state = quoted(&state.to_string_lossy()),
    )
}

/// A worker's configuration. The harness gets the path of its script as its only argument.
pub(super) fn worker(
    setup: &WorkerSetup,
    master: &str,
    state: &Path,
    harness: &Path,
    script: &Path,
) -> String {
    let names = |roles: &mut dyn Iterator<Item = &Role>| {
        let names: Vec<String> = roles.map(|role| quoted(role_name(*role))).collect();
        names.join(", ")
    };
    let profile = format!(
        "\
[harness.stub]
command = [{harness}, {script}]
prompt = \"file\"
roles = [{roles}]
timeout = {timeout}
idle_timeout = {idle_timeout}
",
        harness = quoted(&harness.to_string_lossy()),
        script = quoted(&script.to_string_lossy()),
        roles = names(&mut setup.roles.iter().filter(|role| **role != Role::Ci)),
        timeout = quoted(&setup.timeout),
        idle_timeout = quoted(&setup.idle_timeout),
    );
    let has_harness = setup.roles.iter().any(|role| *role != Role::Ci);
    format!(
        "\
masters = [{master}]
state_dir = {state}
name = {name}
capacity = {capacity}
roles = [{roles}]
term_grace = \"0s\"
drain_grace = {drain_grace}

{profile}",
        master = quoted(master),
        state = quoted(&state.to_string_lossy()),
        name = quoted(&setup.name),
        capacity = setup.capacity,
        roles = names(&mut setup.roles.iter()),
        drain_grace = quoted(&setup.drain_grace),
        profile = if has_harness { profile.as_str() } else { "" },
    )
}

/// The name that configuration and environment give a role.
pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Estimator => "estimator",
        Role::Implementer => "implementer",
        Role::Reviewer => "reviewer",
        Role::ConflictResolver => "conflict_resolver",
        Role::Escalator => "escalator",
        Role::Ci => "ci",
        Role::Unspecified => "unspecified",
    }
}

/// A basic string of TOML: JSON's escapes are all among TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
