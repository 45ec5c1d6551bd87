//! Removes directories that harnesses have had.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Removes `path` and all below it. Nothing there is success; links are not followed.
pub(crate) async fn remove(path: &Path) -> io::Result<()> {
    let path: PathBuf = path.to_owned();
    tokio::task::spawn_blocking(move || remove_blocking(&path))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn remove_blocking(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // Caches of some tools are directories without write permission.
            make_writable(path)?;
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

fn make_writable(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tree_without_write_permission_goes_and_what_links_name_stays() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        let tree = directory.path().join("tree");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        for path in [tree.join("a/b"), tree.join("a")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o500)).unwrap();
        }

        remove(&tree).await.unwrap();
        assert!(!tree.exists());
        assert!(outside.join("file").exists());
        remove(&tree).await.unwrap();
    }
}
