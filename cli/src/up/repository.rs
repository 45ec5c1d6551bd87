//! The person's repository: where it is, what it is called, and whether it can be worked on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pointsman_git::Git;

use crate::error::Error;

/// The oldest git that can try a merge without a working copy.
const OLDEST_GIT: (u32, u32) = (2, 38);

/// Longest name that is made from a directory's: it is typed, and part of a path.
const NAME_MAX: usize = 40;

/// What a repository is called whose directory's name has nothing that a name may have.
const NAMELESS: &str = "repository";

/// A repository that can be worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// Its working copy, or where it has none the repository itself. Without links.
    pub(super) path: PathBuf,
    /// The same as text: what master and worker call it.
    pub(super) url: String,
    pub(super) name: String,
    pub(super) base: String,
}

/// Finds the repository that `path` is or is in, and the branch that pull requests go to: the one that is
/// checked out, unless told otherwise.
pub(super) async fn find(path: &Path, base: Option<&str>) -> Result<Repository, Error> {
    let typed = path.display();
    let usage = |problem: String| Error::Usage(format!("--repo {typed}: {problem}"));
    let path = fs::canonicalize(path).map_err(|error| usage(error.to_string()))?;
    let path = top(&path).ok_or_else(|| {
        usage("no git repository; name one, or make one with `git init` and a first commit".into())
    })?;
    let url = path
        .to_str()
        .ok_or_else(|| usage("its path is no Unicode, which can't be sent to a master".into()))?;
    let git = Git::new(path);
    must_be_recent(&git).await?;
    must_be_whole(&git).await?.map_err(usage)?;
    let base = base_branch(&git, base).await?.map_err(usage)?;
    Ok(Repository {
        path: path.to_owned(),
        url: url.to_owned(),
        name: name_of(path),
        base,
    })
}

/// The directory itself where it is a bare repository, or else the next one upwards that has a `.git`.
fn top(path: &Path) -> Option<&Path> {
    let is_bare = ["HEAD", "objects", "refs"]
        .iter()
        .all(|part| path.join(part).exists());
    if is_bare && path.file_name().is_some_and(|name| name != ".git") {
        return Some(path);
    }
    path.ancestors().find(|place| place.join(".git").exists())
}

async fn must_be_recent(git: &Git) -> Result<(), Error> {
    let text = git.text(["version"]).await.map_err(failed)?;
    match version(&text) {
        Some(found) if found < OLDEST_GIT => {
            let (major, minor) = OLDEST_GIT;
            let problem = format!("{text} is too old: git {major}.{minor} or later is needed");
            Err(Error::Usage(problem))
        }
        // One that doesn't say may do: what it lacks, it says itself.
        Some(_) | None => Ok(()),
    }
}

/// The first two numbers of `git version 2.39.5`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_whitespace().nth(2)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A shallow or partial clone lacks what a worker's copy of it needs.
async fn must_be_whole(git: &Git) -> Result<Result<(), String>, Error> {
    let question = ["rev-parse", "--is-shallow-repository"];
    if git.text(question).await.map_err(failed)? == "true" {
        return Ok(Err(
            "a shallow clone, from which nobody can fetch; complete it with `git fetch --unshallow`"
                .to_owned(),
        ));
    }
    let question = ["config", "--get-regexp", r"^remote\..*\.promisor$", "true"];
    let answer = git.run_expecting(question, &[0, 1]).await.map_err(failed)?;
    Ok(match answer.status {
        0 => Err("a partial clone, which lacks objects; name a whole clone".to_owned()),
        _ => Ok(()),
    })
}

async fn base_branch(git: &Git, wanted: Option<&str>) -> Result<Result<String, String>, Error> {
    let branches = branches(git).await?;
    let question = ["symbolic-ref", "--quiet", "--short", "HEAD"];
    let head = git.run_expecting(question, &[0, 1]).await.map_err(failed)?;
    let there_are = format!("there are: {}", branches.join(", "));
    let base = match wanted {
        Some(base) => base.to_owned(),
        None if head.status == 0 => head.text(),
        None => {
            let problem = format!("no branch is checked out; name one with --base ({there_are})");
            return Ok(Err(problem));
        }
    };
    Ok(if branches.contains(&base) {
        Ok(base)
    } else if branches.is_empty() {
        Err("it has no commit yet; make the first one, with `git commit`".to_owned())
    } else {
        Err(format!(
            "it has no branch {base} ({there_are}); --base names another"
        ))
    })
}

async fn branches(git: &Git) -> Result<Vec<String>, Error> {
    let question = ["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"];
    let text = git.text(question).await.map_err(failed)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn failed(error: pointsman_git::Error) -> Error {
    Error::Failed(anyhow::Error::new(error).context("look at the repository"))
}

/// A name for people from the directory's: what a repository's name may not have becomes a hyphen.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".git").unwrap_or(&name).to_lowercase();
    let plain = |c: char| match c {
        'a'..='z' | '0'..='9' | '_' | '.' => c,
        _ => '-',
    };
    let plain: String = name.chars().map(plain).take(NAME_MAX).collect();
    let is_end = |c: char| !c.is_ascii_alphanumeric();
    match plain.trim_matches(is_end) {
        "" => NAMELESS.to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_only_what_a_name_may_have() {
        let check = |path: &str, name: &str| assert_eq!(name_of(Path::new(path)), name, "{path}");
        check("/srv/git/hello.git", "hello");
        check("/srv/a/My Project (old)", "my-project--old");
        check("/srv/a/.dotfiles", "dotfiles");
        check("/srv/a/日本", NAMELESS);
        check("/", NAMELESS);
        check(
            &format!("/{}", "x".repeat(NAME_MAX + 1)),
            &"x".repeat(NAME_MAX),
        );
    }

    #[test]
    fn versions_are_read_as_vendors_write_them() {
        assert_eq!(version("git version 2.39.5"), Some((2, 39)));
        assert_eq!(
            version("git version 2.37.1 (Apple Git-137.1)"),
            Some((2, 37))
        );
        assert_eq!(version("git version 3.0-rc1"), None);
    }

    async fn repository(directory: &Path, commands: &[&str]) {
        let git = Git::new(directory).with_identity("A", "a@example.invalid");
        for command in commands {
            git.run(command.split(' ')).await.unwrap();
        }
    }

    async fn refusal(path: &Path, base: Option<&str>) -> String {
        find(path, base).await.unwrap_err().message()
    }

    const COMMIT: &str = "commit --quiet --allow-empty -m x";

    #[tokio::test]
    async fn a_directory_in_a_repository_names_the_repository_and_its_branch() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        repository(&place, &["init --quiet", "checkout --quiet -b dev", COMMIT]).await;
        let inside = place.join("a/b");
        fs::create_dir_all(&inside).unwrap();
        for path in [&place, &inside, &place.join(".git")] {
            let found = find(path, None).await.unwrap();
            assert_eq!((found.path.as_path(), &*found.base), (&*place, "dev"));
        }
    }

    #[tokio::test]
    async fn a_bare_repository_in_another_one_is_itself() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        repository(
            &place,
            &["init --quiet", COMMIT, "clone --quiet --bare . inner.git"],
        )
        .await;
        let found = find(&place.join("inner.git"), None).await.unwrap();
        assert_eq!((&*found.name, &*found.base), ("inner", "main"));
    }

    #[tokio::test]
    async fn what_can_not_be_worked_on_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let check = async |base: Option<&str>, part: &str| {
            let refusal = refusal(place, base).await;
            assert!(refusal.contains(part), "{part:?} in {refusal}");
        };
        let missing = refusal(&place.join("missing"), None).await;
        assert!(missing.contains("No such file"), "{missing}");
        check(None, "`git init`").await;
        repository(place, &["init --quiet"]).await;
        check(None, "no commit yet").await;
        repository(place, &[COMMIT]).await;
        check(Some("dev"), "no branch dev (there are: main)").await;
        repository(place, &["checkout --quiet --detach"]).await;
        check(None, "name one with --base").await;
        assert!(find(place, Some("main")).await.is_ok());
    }

    #[tokio::test]
    async fn a_clone_that_is_not_whole_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        repository(place, &["init --quiet --bare origin"]).await;
        let origin = place.join("origin");
        let seed = place.join("seed");
        fs::create_dir(&seed).unwrap();
        let push = format!("push --quiet {} HEAD:main", origin.display());
        repository(&seed, &["init --quiet", COMMIT, COMMIT, &push]).await;
        let url = format!("file://{}", origin.display());
        let shallow = format!("clone --quiet --depth 1 {url} shallow");
        let partial = format!("clone --quiet --filter=blob:none --no-checkout {url} partial");
        repository(place, &[&shallow, &partial]).await;
        let said = refusal(&place.join("shallow"), None).await;
        assert!(said.contains("git fetch --unshallow"), "{said}");
        let said = refusal(&place.join("partial"), None).await;
        assert!(said.contains("a partial clone"), "{said}");
    }
}
