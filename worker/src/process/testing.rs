//! Processes to practise on.

use std::{
    io::Read as _,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{identity::Recorded, pidfd::Pidfd};

/// A process group of its own that sleeps; killed when dropped.
pub(crate) struct Sleeper {
    child: Child,
}

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self::run("echo; exec sleep 60", &[])
    }

    /// One that carries a variable of that name and value.
    pub(crate) fn start_with(name: &str, value: &str) -> Self {
        Self::run("echo; exec sleep 60", &[(name, value)])
    }

    pub(crate) fn start_ignoring_term() -> Self {
        Self::run("trap '' TERM; echo; exec sleep 60", &[])
    }

    #[expect(clippy::disallowed_methods, reason = "a process to practise on")]
    fn run(script: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .envs(variables.iter().copied())
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The newline says that the script has come as far as its `exec`.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self { child }
    }

    pub(crate) fn recorded(&self) -> Recorded {
        Recorded::child(self.child.id()).unwrap()
    }

    pub(crate) fn is_dead(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Leaves a zombie behind.
    pub(crate) fn kill_without_reaping(&mut self) {
        let pidfd = Pidfd::open(self.child.id()).unwrap();
        self.child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !pidfd.has_exited().unwrap() {
            assert!(Instant::now() < deadline, "SIGKILL had no effect");
            std::thread::yield_now();
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A pipe with a name, where a file is expected.
pub(crate) fn make_pipe(path: &std::path::Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("make a pipe");
}
