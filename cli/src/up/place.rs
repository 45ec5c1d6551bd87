//! The state directory of one repository: where it is, and that one process at a time uses it.

use std::{
    env, fs,
    fs::{DirBuilder, File, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::repository::Repository;
use crate::error::Error;

/// Bytes of the hash of a repository's path that tell state directories apart. Eight hexadecimal digits,
/// since the path should be short; should two agree, the second repository is refused.
const HASH_BYTES: usize = 4;

/// Holds the path of the repository whose state it is.
const OWNER_FILE: &str = "repository";

/// Locked for as long as a process uses the directory; holds that process's id.
const LOCK_FILE: &str = "up.lock";

/// A state directory that is ours until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) directory: PathBuf,
    lock: File,
}

impl Drop for Place {
    /// By name: a child that was just forked holds a copy of the file.
    fn drop(&mut self) {
        drop(self.lock.unlock());
    }
}

/// Where the state of this repository is, unless told otherwise.
pub(super) fn default_directory(repository: &Repository) -> Result<PathBuf, Error> {
    let home = base_directory("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        Error::Usage("neither HOME nor XDG_STATE_HOME is set: name a --state-dir".to_owned())
    })?;
    let hash = Sha256::digest(repository.url.as_bytes());
    let hash: String = hash
        .iter()
        .take(HASH_BYTES)
        .map(|b| format!("{b:02x}"))
        .collect();
    Ok(home
        .join("pointsman")
        .join(format!("{}-{hash}", repository.name)))
}

/// A directory of the XDG Base Directory Specification, which wants relative paths to be ignored.
pub(super) fn base_directory(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |variable: &str| {
        let path = PathBuf::from(env::var_os(variable)?);
        path.is_absolute().then_some(path)
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))
}

/// Takes the directory for this repository, making it where there is none.
pub(super) fn take(directory: &Path, repository: &Repository) -> Result<Place, Error> {
    let usage = |problem: String| {
        Error::Usage(format!(
            "the state directory {}: {problem}",
            directory.display()
        ))
    };
    let failed = |error: io::Error| usage(error.to_string());
    let absolute = std::path::absolute(directory).map_err(failed)?;
    must_be_apart(&absolute, &repository.path).map_err(usage)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&absolute)
        .map_err(failed)?;
    // Once more, without links.
    let directory = fs::canonicalize(&absolute).map_err(failed)?;
    must_be_apart(&directory, &repository.path).map_err(usage)?;
    let lock = lock(&directory, repository, failed)?;
    let place = Place { directory, lock };
    place
        .must_belong_to(repository)
        .map_err(failed)?
        .map_err(usage)?;
    Ok(place)
}

/// Nothing of ours is written into a person's repository.
fn must_be_apart(directory: &Path, repository: &Path) -> Result<(), String> {
    if directory.starts_with(repository) {
        return Err(format!(
            "inside of the repository {}; name one elsewhere",
            repository.display()
        ));
    }
    Ok(())
}

fn lock(
    directory: &Path,
    repository: &Repository,
    failed: impl Fn(io::Error) -> Error,
) -> Result<File, Error> {
    let mut options = File::options();
    options.create(true).read(true).write(true).truncate(false);
    let mut file = options.open(directory.join(LOCK_FILE)).map_err(&failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed(error)),
        Err(TryLockError::WouldBlock) => return Err(Error::Refused(held(&mut file, repository))),
    }
    let pid = format!("{}\n", std::process::id());
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(pid.as_bytes()))
        .map_err(failed)?;
    Ok(file)
}

fn held(file: &mut File, repository: &Repository) -> String {
    let mut pid = String::new();
    let _bytes = file.read_to_string(&mut pid);
    let path = repository.path.display();
    match pid.trim() {
        "" => format!("`pointsman up` runs on {path} already"),
        pid => format!(
            "`pointsman up` runs on {path} already, as process {pid}; `kill {pid}` stops it in order"
        ),
    }
}

impl Place {
    fn must_belong_to(&self, repository: &Repository) -> io::Result<Result<(), String>> {
        let file = self.directory.join(OWNER_FILE);
        let owner = match fs::read_to_string(&file) {
            Ok(owner) => owner,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::write(&file, &repository.url)?;
                return Ok(Ok(()));
            }
            Err(error) => return Err(error),
        };
        Ok(if owner == repository.url {
            Ok(())
        } else {
            Err(format!(
                "it is that of {owner}; name another with --state-dir"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &Path) -> Repository {
        Repository {
            path: path.to_owned(),
            url: path.to_str().unwrap().to_owned(),
            name: "demo".to_owned(),
            base: "main".to_owned(),
        }
    }

    #[test]
    fn a_directory_is_one_processs_and_one_repositorys() {
        let directory = tempfile::tempdir().unwrap();
        let (state, one) = (
            directory.path().join("a/state"),
            repository(Path::new("/one")),
        );
        let place = take(&state, &one).unwrap();
        let Err(Error::Refused(why)) = take(&state, &one) else {
            panic!("taken twice");
        };
        assert!(
            why.contains(&format!("as process {};", std::process::id())),
            "{why}"
        );
        drop(place);
        drop(take(&state, &one).unwrap());
        let why = take(&state, &repository(Path::new("/two")))
            .unwrap_err()
            .message();
        assert!(why.contains("it is that of /one"), "{why}");
    }

    #[test]
    fn a_directory_in_the_repository_is_refused_also_behind_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let path = place.join("repository");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, place.join("link")).unwrap();
        for state in [path.join("state"), path.clone(), place.join("link/state")] {
            let why = take(&state, &repository(&path)).unwrap_err().message();
            assert!(why.contains("inside of the repository"), "{why}");
        }
    }

    #[test]
    fn a_directory_that_can_not_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let why = take(&file.join("state"), &repository(Path::new("/one")))
            .unwrap_err()
            .message();
        assert!(
            why.contains("file/state") && why.contains("Not a directory"),
            "{why}"
        );
    }
}
