//! How remotes on other hosts are reached: without a terminal, and with the operator's own settings.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{Error, Git};

/// What ssh is started as where the operator says nothing else. It asks nobody anything, gives up on a host
/// that does not answer, and notices one that is gone.
const SSH: &str =
    "ssh -oBatchMode=yes -oConnectTimeout=15 -oServerAliveInterval=15 -oServerAliveCountMax=4";
/// A transfer over http that brings less than one byte a second for a minute is dead.
const SLOW_BYTES_A_SECOND: &str = "1";
const SLOW_SECONDS: &str = "60";
/// Whoever may write the file besides its owner.
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Why a file with git settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It names programs that are run, so nobody else may write it.
    #[error("{} can be written by others than the user that runs this and root", path.display())]
    NotOurs { path: PathBuf },
    #[error("{} holds no git settings", path.display())]
    Syntax {
        path: PathBuf,
        #[source]
        source: Error,
    },
}

/// Settings of git for commands that talk to a remote. Cheap to clone.
///
/// The operator's file counts as git's global configuration for these commands alone: `core.sshCommand`,
/// `credential.*`, `http.*`, `url.*.insteadOf`, `include.path` and so on. Not honoured are `core.hooksPath` and
/// `protocol.ext.allow`, which are set on each command line, and aliases, since no command here is one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    config: Option<PathBuf>,
    has_ssh_command: bool,
}

impl Access {
    /// With the settings in `config`, where there are any.
    ///
    /// # Errors
    ///
    /// Where the file is not there, is no configuration of git's, or others may write it.
    pub async fn read(config: Option<PathBuf>) -> Result<Self, AccessError> {
        let Some(path) = config else {
            return Ok(Self::default());
        };
        // Commands run elsewhere.
        let path =
            std::path::absolute(&path).map_err(|source| AccessError::Read { path, source })?;
        check_owner(&path)?;
        let listed = Git::new("/")
            .run_expecting(
                [
                    OsString::from("config"),
                    OsString::from("--includes"),
                    OsString::from("--file"),
                    path.clone().into_os_string(),
                    OsString::from("--get"),
                    OsString::from("core.sshCommand"),
                ],
                &[0, 1],
            )
            .await;
        let found = listed.map_err(|source| AccessError::Syntax {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            config: Some(path),
            has_ssh_command: found.status == 0,
        })
    }
}

impl Git {
    /// Commands may talk to remotes: with the operator's settings, and so that nothing waits for a person.
    #[must_use]
    pub fn reaching(self, access: &Access) -> Self {
        let mut git = self
            // ssh asks for passwords and unknown hosts on a terminal if there is one: this answers instead.
            .with_env("SSH_ASKPASS", "false")
            .with_env("SSH_ASKPASS_REQUIRE", "force")
            .with_env("GIT_HTTP_LOW_SPEED_LIMIT", SLOW_BYTES_A_SECOND)
            .with_env("GIT_HTTP_LOW_SPEED_TIME", SLOW_SECONDS);
        if let Some(config) = &access.config {
            git = git.with_env("GIT_CONFIG_GLOBAL", config);
        }
        if !access.has_ssh_command {
            git = git.with_env("GIT_SSH_COMMAND", SSH);
        }
        git
    }
}

fn check_owner(path: &Path) -> Result<(), AccessError> {
    let about = |path: &Path| {
        std::fs::metadata(path).map_err(|source| AccessError::Read {
            path: path.to_owned(),
            source,
        })
    };
    let file = about(path)?;
    let us = about(Path::new("/proc/self"))?.uid();
    if file.mode() & OTHERS_MAY_WRITE != 0 || ![0, us].contains(&file.uid()) {
        return Err(AccessError::NotOurs {
            path: path.to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gitconfig");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }

    #[tokio::test]
    async fn a_file_that_is_missing_broken_or_open_to_others_is_refused() {
        let (directory, path) = file("[core]\n\tsshCommand = ssh -4\n", 0o644);
        let access = Access::read(Some(path.clone())).await.unwrap();
        assert!(access.has_ssh_command);
        let missing = Access::read(Some(directory.path().join("missing"))).await;
        assert!(
            matches!(missing, Err(AccessError::Read { .. })),
            "{missing:?}"
        );
        for mode in [0o664, 0o646] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let open = Access::read(Some(path.clone())).await;
            assert!(matches!(open, Err(AccessError::NotOurs { .. })), "{open:?}");
        }
        let (_directory, path) = file("[core\n", 0o600);
        let broken = Access::read(Some(path)).await;
        assert!(
            matches!(broken, Err(AccessError::Syntax { .. })),
            "{broken:?}"
        );
    }

    #[tokio::test]
    async fn the_operators_settings_count_for_remotes_alone_and_hooks_never() {
        let (directory, path) = file("[user]\n\tname = Op\n[core]\n\thooksPath = /tmp\n", 0o600);
        let access = Access::read(Some(path)).await.unwrap();
        let git = Git::new(directory.path());
        let name = ["config", "--get", "user.name"];
        let without = git.run_expecting(name, &[0, 1]).await.unwrap();
        assert_eq!(without.status, 1);
        let git = git.reaching(&access);
        assert_eq!(git.text(name).await.unwrap(), "Op");
        let hooks = git.text(["config", "--get", "core.hooksPath"]).await;
        assert_eq!(hooks.unwrap(), "/dev/null");
    }

    #[tokio::test]
    async fn ssh_is_asked_to_ask_nobody_unless_the_operator_names_another() {
        let said = async |text: &str| {
            let (directory, path) = file(text, 0o600);
            let access = Access::read(Some(path)).await.unwrap();
            let git = Git::new(directory.path()).reaching(&access);
            let show = [
                "-c",
                "alias.show-ssh=!echo \"$GIT_SSH_COMMAND\"",
                "show-ssh",
            ];
            git.text(show).await.unwrap()
        };
        assert!(said("").await.contains("BatchMode=yes"));
        assert_eq!(said("[core]\n\tsshCommand = ssh -4\n").await, "");
    }

    #[tokio::test]
    async fn an_address_that_says_nothing_is_given_up_at_the_deadline() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x.git", silent.local_addr().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let git = Git::new(directory.path())
            .reaching(&Access::default())
            .with_deadline(std::time::Duration::from_millis(300));
        let error = git.run(["ls-remote", &url]).await.unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
    }
}
