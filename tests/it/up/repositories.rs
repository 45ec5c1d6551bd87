//! Three repositories that are unlike each other, three issues at once on each, two of them about the same
//! line: all merged, and the working copy clean and on the merged commit.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path};

use super::person::Person;

/// Lets no implementer begin before all three are there, so that all start from the same commit.
fn together(person: &Person, work: &str) -> String {
    let mark = person.home().join("here");
    fs::create_dir(&mark).unwrap();
    let mark = mark.display();
    format!(
        ": > '{mark}'/\"$title\"; until [ \"$(ls '{mark}' | wc -l)\" -ge 3 ]; do sleep 0.1; done\n{work}"
    )
}

/// Submits the issues `one`, `two` and `three`, of which `work` makes two conflict, and sees all merged.
async fn all_are_merged(person: &Person, ci: &str, work: &str) {
    let harness = person.harness(&together(person, work));
    let untouched = person.shell("git config --list --local").await;
    let mut up = person.up(&[
        "--ci",
        ci,
        "--harness",
        &harness,
        "--capacity",
        "3",
        "--until-done",
        "--submit",
        "one",
        "--submit",
        "two",
        "--submit",
        "three",
    ]);
    let ended = up.end().await;
    assert_eq!(ended.code(), Some(0), "{}", person.logs());
    let merged: Vec<String> = up
        .lines()
        .iter()
        .filter(|line| line["type"] == "ended" && line["state"] == "MERGED")
        .map(|line| line["merged_commit"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(merged.len(), 3, "{}", up.text());
    let n_conflicts = up
        .lines()
        .iter()
        .filter(|line| line["event"]["to_state"] == "CONFLICT_RESOLVING")
        .count();
    assert!(n_conflicts > 0, "nothing was in conflict: {}", up.text());
    assert_eq!(person.shell("git status --porcelain").await, "");
    assert_eq!(person.shell("git config --list --local").await, untouched);
    let head = person.shell("git rev-parse HEAD").await;
    assert!(merged.contains(&head), "{head} is none of {merged:?}");
    person.shell(ci).await;
    person.is_left_alone().await;
}

#[tokio::test]
async fn a_rust_crate() {
    let person = Person::new("adder").await;
    let write = |path: &str, text: &str| {
        let path = person.repository.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "Cargo.toml",
        "[package]\nname = \"adder\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    );
    write(".gitignore", "/target\n");
    write(
        "src/lib.rs",
        "//! Adds.\n#[cfg(test)]\nmod tests;\npub fn zero() -> u32 { 0 }\n",
    );
    write(
        "src/tests.rs",
        "#[test]\nfn zero() { assert_eq!(super::zero(), 0); }\n",
    );
    person
        .shell(
            "cargo generate-lockfile --offline --quiet; git add --all; git commit --quiet -m first",
        )
        .await;
    // The test comes into a file that all three change in the same place.
    let work = r##"
        echo "pub fn $title() -> u32 { ${#title} }" >> src/lib.rs
        echo "#[test] fn $title() { assert_eq!(super::$title(), ${#title}); }" >> src/tests.rs"##;
    all_are_merged(&person, "cargo test --quiet --offline", work).await;
    assert_eq!(person.shell("grep -c 'pub fn' src/lib.rs").await, "4");
}

#[tokio::test]
async fn a_python_package() {
    let person = Person::new("greeter").await;
    person
        .shell(
            r#"
            mkdir greeter tests
            printf '.*\n__pycache__/\n' > .gitignore
            echo 'GREETINGS = ["hello"]' > greeter/__init__.py
            : > tests/__init__.py
            printf '%s\n' 'import unittest' 'import greeter' 'class T(unittest.TestCase):' \
                '    def test_all(self): self.assertIn("hello", greeter.GREETINGS)' > tests/test_all.py
            git add --all; git commit --quiet -m first"#,
        )
        .await;
    // `three` renames nothing and is alone in its file; `one` and `two` change the same line.
    let work = r#"
        case "$title" in
        three) printf '%s\n' 'import unittest' 'class T(unittest.TestCase):' \
            '    def test_three(self): self.assertEqual(3, 3)' > tests/test_three.py ;;
        *) echo "GREETINGS.append('$title')" >> greeter/__init__.py ;;
        esac"#;
    all_are_merged(&person, "python3 -m unittest discover --quiet", work).await;
    let greetings = "python3 -c 'import greeter; print(*sorted(greeter.GREETINGS))'";
    assert_eq!(person.shell(greetings).await, "hello one two");
}

/// Names that something has tripped over: spaces, quotes, a line end, a hyphen in front, bytes that are no
/// Unicode, a very long name, names that differ by case alone, and git's own quoting characters.
fn odd_names() -> Vec<Vec<u8>> {
    let long = "l".repeat(250);
    let names: [&[u8]; 9] = [
        b"with space",
        b"\"quoted\" 'twice'",
        b"line\nend",
        b"-n",
        b"latin-\xe9",
        long.as_bytes(),
        b"CASE",
        b"case",
        b"back\\slash\ttab",
    ];
    names.map(<[u8]>::to_vec).to_vec()
}

#[tokio::test]
async fn submodules_and_odd_files() {
    let person = Person::new("odd.d").await;
    for name in odd_names() {
        fs::write(person.repository.join(OsStr::from_bytes(&name)), "odd\n").unwrap();
    }
    person
        .shell(
            r#"
            git init --quiet ../part
            git -C ../part commit --quiet --allow-empty -m part
            git -c protocol.file.allow=always submodule --quiet add "$PWD/../part" part
            printf '*.crlf text eol=crlf\n*.up filter=up\n*.bin filter=lfs diff=lfs merge=lfs -text\n' > .gitattributes
            printf 'a\r\nb\r\n' > windows.crlf
            echo up > x.up
            printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 7\n' 0 > large.bin
            ln -s windows.crlf link; ln -s ../outside dangling
            printf '#!/bin/sh\nexit 0\n' > run; chmod +x run
            printf 'a\n' > list
            git add --all; git commit --quiet -m first
            # A filter of this person's, which nobody else has.
            git config filter.up.smudge 'tr a-z A-Z'; git config filter.up.clean 'tr A-Z a-z'
            rm x.up; git checkout --quiet x.up"#,
        )
        .await;
    let tree = "git ls-tree -r --full-tree HEAD | grep -v -e list -e 'two\"$'";
    let before = person.shell(tree).await;
    let work = r#"
        case "$title" in
        two) printf x > "two
two" ;;
        *) echo "$title" >> list ;;
        esac"#;
    // The check sees what a checkout has: submodules are there as empty directories, LFS files as pointers,
    // and a filter that only the person has configured is not run.
    let ci = "test -x run && test -L link && test -d part && test \"$(cat -- -n)\" = odd && test -e 'line\nend'";
    all_are_merged(&person, ci, work).await;
    assert_eq!(person.shell(tree).await, before, "nobody asked for more");
    assert_eq!(
        person.shell("sort list; cat x.up").await,
        "a\none\nthree\nUP"
    );
    assert!(Path::new(&person.repository).join("two\ntwo").exists());
}
