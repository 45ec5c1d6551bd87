//! The shim by itself, run as the agent would run it.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{eventually, is_dead, is_locked, json, number_in, signal, stat};

const FAR: &str = "18446744073709551615";

/// A session's directory with a shim in it.
struct Stage {
    directory: TempDir,
    shim: Option<Child>,
}

impl Stage {
    /// What is to be run, with half a second between TERM and KILL.
    fn new(command: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stage = Self {
            directory,
            shim: None,
        };
        let launch = json!({
            "command": command,
            "directory": stage.directory.path(),
            "stdin": null,
            "grace_ms": 500,
        });
        fs::write(stage.path("launch.json"), launch.to_string()).unwrap();
        fs::write(stage.path("deadline"), FAR).unwrap();
        let intent = json!({"schema": 1, "state": "starting", "kept": "as it is"});
        fs::write(stage.path("sidecar.json"), intent.to_string()).unwrap();
        stage
    }

    fn script(script: &str) -> Self {
        Self::new(&["/bin/sh", "-c", script])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&mut self) -> u32 {
        self.start_by(&[])
    }

    /// Starts the shim as the last argument of another command.
    #[expect(clippy::disallowed_methods, reason = "the shim under test")]
    fn start_by(&mut self, before: &[&str]) -> u32 {
        let mut words = before.to_vec();
        words.push(env!("CARGO_BIN_EXE_pointsman-worker"));
        let lock = File::create(self.path("lock")).unwrap();
        lock.try_lock().unwrap();
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.path("log"))
            .unwrap();
        let shim = Command::new(words[0])
            .args(&words[1..])
            .arg("shim")
            .arg(self.directory.path())
            .env_clear()
            .env("ONLY", "this")
            .env("PATH", "/usr/bin:/bin")
            .stdin(lock)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        self.shim.insert(shim).id()
    }

    /// Waits for the shim's end and returns whether it did its work.
    fn end(&mut self) -> bool {
        let shim = self.shim.as_mut().unwrap();
        eventually("end of the shim", || shim.try_wait().unwrap()).success()
    }

    /// Waits for the shim's end and returns the signal that ended it.
    fn end_signal(&mut self) -> Option<i32> {
        let shim = self.shim.as_mut().unwrap();
        eventually("end of the shim", || shim.try_wait().unwrap()).signal()
    }

    fn run(&mut self) -> bool {
        self.start();
        self.end()
    }

    fn record(&self) -> serde_json::Value {
        json(&self.path("exit.json")).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    fn number(&self, name: &str) -> u32 {
        eventually(name, || number_in(&self.path(name)))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(shim) = &mut self.shim
            && shim.try_wait().unwrap().is_none()
        {
            signal(shim.id(), Signal::SIGTERM);
            shim.wait().unwrap();
        }
    }
}

#[test]
fn the_exit_record_says_how_it_ended() {
    let cases = [
        ("exit 0", json!({"exited": 0})),
        ("exit 3", json!({"exited": 3})),
        ("kill -9 $$", json!({"signaled": 9})),
        // A real-time signal, which not every library can name.
        ("kill -40 $$", json!({"signaled": 40})),
    ];
    for (script, exit) in cases {
        let mut stage = Stage::script(script);
        assert!(stage.run(), "{script}");
        let expected = json!({"cause": "harness", "exit": exit});
        assert_eq!(stage.record(), expected, "{script}");
    }
}

#[test]
fn the_harness_runs_only_after_it_is_recorded() {
    // What is copied is what was there when the harness began.
    let mut stage = Stage::script("cp sidecar.json seen.json; echo $$ > pid; read forever < fifo");
    nix::unistd::mkfifo(&stage.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let shim = stage.start();
    let pid = stage.number("pid");
    let seen = json(&stage.path("seen.json")).unwrap();
    let (_, parent, starttime) = stat(pid).unwrap();
    assert_eq!(parent, shim);
    assert_eq!(seen["state"], "running");
    assert_eq!(seen["subprocess_pid"], pid);
    assert_eq!(seen["subprocess_starttime"], starttime);
    assert_eq!(seen["shim_pid"], shim);
    assert_eq!(seen["shim_starttime"], stat(shim).unwrap().2);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(seen["boot_id"], boot_id.trim());
    assert_eq!(seen["kept"], "as it is");
}

#[test]
fn a_shim_that_dies_before_the_record_leaves_no_harness() {
    let mut stage = Stage::script("touch ran");
    // Its first byte in any file, which is the sidecar's, kills it: the child is at its gate.
    stage.start_by(&["/bin/sh", "-c", "ulimit -f 0; exec \"$@\"", "sh"]);
    assert_eq!(stage.end_signal(), Some(Signal::SIGXFSZ as i32));
    // At its gate the child has the lock too.
    let lock = stage.path("lock");
    eventually("end of the child", || (!is_locked(&lock)).then_some(()));
    assert!(!stage.path("ran").exists());
    assert_eq!(
        json(&stage.path("sidecar.json")).unwrap()["state"],
        "starting"
    );
}

#[test]
fn a_record_that_can_not_be_written_keeps_the_gate_shut() {
    let mut stage = Stage::script("touch ran");
    fs::create_dir(stage.path(".sidecar.json.tmp")).unwrap();
    assert!(!stage.run());
    assert!(!stage.path("ran").exists());
    assert!(!stage.path("exit.json").exists());
    assert!(
        stage.log().contains("record the harness"),
        "{}",
        stage.log()
    );
}

#[test]
fn a_harness_that_ignores_term_is_killed_after_the_grace() {
    let mut stage = Stage::script("trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done");
    let shim = stage.start();
    let pid = stage.number("pid");
    let asked_at = Instant::now();
    signal(shim, Signal::SIGTERM);
    assert!(stage.end());
    assert!(asked_at.elapsed() >= Duration::from_millis(500));
    assert!(is_dead(pid));
    assert_eq!(
        stage.record(),
        json!({"cause": "stopped", "exit": {"signaled": 9}})
    );
}

#[test]
fn a_harness_that_obeys_term_has_its_grace() {
    let mut stage = Stage::script(
        "trap 'sleep 0.1; touch cleaned; exit 4' TERM; echo $$ > pid; while :; do sleep 0.05; done",
    );
    let shim = stage.start();
    stage.number("pid");
    signal(shim, Signal::SIGTERM);
    assert!(stage.end());
    assert!(stage.path("cleaned").exists());
    assert_eq!(
        stage.record(),
        json!({"cause": "stopped", "exit": {"exited": 4}})
    );
}

#[test]
fn a_stopped_harness_is_woken_to_end() {
    let mut stage = Stage::script("echo $$ > pid; kill -STOP $$; exit 5");
    let shim = stage.start();
    let pid = stage.number("pid");
    eventually("the harness stops", || {
        stat(pid).filter(|(state, ..)| *state == 'T')
    });
    let asked_at = Instant::now();
    signal(shim, Signal::SIGTERM);
    assert!(stage.end());
    assert_eq!(
        stage.record(),
        json!({"cause": "stopped", "exit": {"signaled": 15}})
    );
    assert!(asked_at.elapsed() < Duration::from_millis(500), "no KILL");
}

/// zxkane/autonomous-dev-team#109: the recorded process was a wrapper, and what it had started lived on.
#[test]
fn nothing_that_a_harness_started_outlives_it() {
    let mut stage = Stage::script(
        "setsid sh -c 'trap \"\" TERM; echo $$ > escaped; exec sleep 100' &
         (sh -c 'echo $$ > daemon; exec sleep 100' &)
         while ! [ -s escaped ] || ! [ -s daemon ]; do sleep 0.01; done
         exit 3",
    );
    assert!(stage.run());
    assert_eq!(
        stage.record(),
        json!({"cause": "harness", "exit": {"exited": 3}})
    );
    for name in ["escaped", "daemon"] {
        assert!(is_dead(stage.number(name)), "{name}");
    }
}

#[test]
fn a_deadline_in_the_past_stops_the_harness() {
    let mut stage = Stage::script("sleep 100");
    fs::write(stage.path("deadline"), "1").unwrap();
    assert!(stage.run());
    assert_eq!(
        stage.record(),
        json!({"cause": "deadline", "exit": {"signaled": 15}})
    );
}

#[test]
fn pipes_where_the_shims_files_belong_do_not_stop_it() {
    let mut stage = Stage::script(
        "rm deadline; mkfifo deadline .exit.json.tmp exit.json; echo $$ > pid; exec sleep 100",
    );
    let shim = stage.start();
    stage.number("pid");
    signal(shim, Signal::SIGTERM);
    assert!(stage.end());
    assert_eq!(stage.record()["cause"], "stopped");
}

#[test]
fn the_deadline_is_read_again_while_the_harness_runs() {
    let mut stage = Stage::script("echo $$ > pid; exec sleep 100");
    stage.start();
    stage.number("pid");
    // A file that can't be read changes nothing; the next whole one counts.
    fs::write(stage.path("deadline"), "").unwrap();
    fs::write(stage.path("deadline"), "1").unwrap();
    assert!(stage.end());
    assert_eq!(stage.record()["cause"], "deadline");
}

#[test]
fn a_program_that_is_not_there_is_named_in_the_log() {
    let mut stage = Stage::new(&["no-such-program", "-p"]);
    assert!(stage.run());
    assert_eq!(stage.record()["exit"], json!({"exited": 127}));
    let log = stage.log();
    assert!(log.contains("failed to run no-such-program"), "{log}");
}

#[test]
fn the_harness_gets_the_shims_environment_and_nothing_else() {
    let mut stage = Stage::new(&["env"]);
    assert!(stage.run());
    assert_eq!(stage.log(), "ONLY=this\nPATH=/usr/bin:/bin\n");
}

#[test]
fn a_directory_that_is_not_there_is_no_start() {
    let mut stage = Stage::new(&["true"]);
    let mut launch = json(&stage.path("launch.json")).unwrap();
    launch["directory"] = json!(stage.path("none"));
    fs::write(stage.path("launch.json"), launch.to_string()).unwrap();
    assert!(!stage.run());
    assert!(!stage.path("exit.json").exists());
    assert_eq!(
        json(&stage.path("sidecar.json")).unwrap()["state"],
        "starting"
    );
    let log = stage.log();
    assert!(
        log.contains("failed to set up the harness: No such file"),
        "{log}"
    );
}

#[test]
fn the_harness_gets_three_descriptors_and_no_core_dumps() {
    let mut stage =
        Stage::script("ulimit -c; ulimit -Hc; for fd in /proc/$$/fd/*; do readlink $fd; done");
    // A descriptor that programs inherit, as a careless parent of the agent may have left it.
    let leaked = nix::unistd::dup(std::io::stdin()).unwrap();
    assert!(stage.run());
    drop(leaked);
    let log = stage.log();
    let lines: Vec<_> = log.lines().collect();
    let path = stage.path("log").canonicalize().unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(lines, ["0", "0", "/dev/null", path, path]);
}

#[test]
fn the_prompt_can_be_the_standard_input() {
    let mut stage = Stage::new(&["cat"]);
    let mut launch = json(&stage.path("launch.json")).unwrap();
    launch["stdin"] = json!(stage.path("prompt.md"));
    fs::write(stage.path("launch.json"), launch.to_string()).unwrap();
    fs::write(stage.path("prompt.md"), "do this\n").unwrap();
    assert!(stage.run());
    assert_eq!(stage.log(), "do this\n");
}

#[test]
fn the_agents_pipe_ends_when_the_harness_starts() {
    let mut stage = Stage::script("echo $$ > pid; exec sleep 100");
    stage.start();
    let mut pipe = stage.shim.as_mut().unwrap().stdout.take().unwrap();
    let mut said = String::new();
    // Returns while the harness runs: neither shim nor harness holds the pipe.
    pipe.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    assert!(!is_dead(stage.number("pid")));
}

#[test]
fn the_lock_is_the_shims_and_not_the_harnesss() {
    let mut stage = Stage::script("echo $$ > pid; exec sleep 100");
    let shim = stage.start();
    let pid = stage.number("pid");
    let lock = stage.path("lock");
    assert!(is_locked(&lock));
    signal(shim, Signal::SIGKILL);
    assert!(!stage.end());
    assert!(!is_locked(&lock));
    assert!(!is_dead(pid), "nobody stops a harness without its shim");
    signal(pid, Signal::SIGKILL);
}
