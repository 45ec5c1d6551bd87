//! Which harness is run: profiles of a file, or command lines.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use toml::{Table, Value};

use super::place::base_directory;
use crate::{
    error::Error,
    processes::config::{HARNESS_ROLES, profile},
};

/// Where profiles are looked for, in the home of configurations.
const PROFILES_FILE: &str = "pointsman/worker.toml";

/// What a command line's profile is called. A second one has a number behind it.
const PROFILE_NAME: &str = "harness";

#[derive(Debug, Args)]
#[command(next_help_heading = "Harness")]
pub(crate) struct Harness {
    /// What does the work: a profile's name, or a command line as a shell would split it (no shell runs
    /// it). Repeat it for harnesses that share the roles
    #[arg(long = "harness", required = true, value_name = "COMMAND|PROFILE")]
    harnesses: Vec<String>,
    /// How a command line gets its prompt. The file that POINTSMAN_PROMPT_FILE names is there in any case
    #[arg(long, value_enum, default_value = "stdin", value_name = "HOW")]
    harness_prompt: PromptBy,
    /// A variable of this environment that the harness gets, as often as needed. It gets no others but
    /// PATH and the session's own
    #[arg(long, value_name = "NAME")]
    harness_env: Vec<String>,
    /// File with profiles, `[harness.NAME]` as in a worker's configuration [default:
    /// pointsman/worker.toml in the XDG configuration directory, if it is there]
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
}

/// How a command line gets its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PromptBy {
    /// It reads the file
    File,
    /// On standard input
    Stdin,
    /// As one more argument, the last
    Argument,
}

impl Harness {
    /// The profiles by name, each with a program that is there; together they do every role.
    pub(super) fn profiles(&self) -> Result<Table, Error> {
        let known = self.known()?;
        let mut chosen = Table::new();
        for typed in &self.harnesses {
            match known.get(typed) {
                Some(profile) => {
                    chosen.insert(typed.clone(), profile.clone());
                }
                None => {
                    let profile = self.command_line(typed, &known)?;
                    chosen.insert(free_name(&chosen), profile.into());
                }
            }
        }
        for (name, profile) in &mut chosen {
            let problem = |problem: &str| Error::Usage(format!("harness {name}: {problem}"));
            let profile = profile
                .as_table_mut()
                .ok_or_else(|| problem("a table is needed"))?;
            must_be_there(profile).map_err(|why| problem(&why))?;
            self.pass_on(profile).map_err(|why| problem(&why))?;
        }
        must_do_every_role(&chosen)?;
        Ok(chosen)
    }

    /// What a person calls it.
    pub(super) fn names(&self) -> String {
        self.harnesses.join(", ")
    }

    fn known(&self) -> Result<Table, Error> {
        let default =
            || base_directory("XDG_CONFIG_HOME", ".config").map(|at| at.join(PROFILES_FILE));
        let Some(path) = self.profiles.clone().or_else(default) else {
            return Ok(Table::new());
        };
        let usage =
            |problem: String| Error::Usage(format!("profiles {}: {problem}", path.display()));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.profiles.is_none() => {
                return Ok(Table::new());
            }
            Err(error) => return Err(usage(error.to_string())),
        };
        let mut file: Table = text
            .parse()
            .map_err(|error: toml::de::Error| usage(error.to_string()))?;
        match file.remove("harness") {
            Some(Value::Table(profiles)) => Ok(profiles),
            Some(_) => Err(usage("`harness` is to be a table of profiles".to_owned())),
            None => Ok(Table::new()),
        }
    }

    fn command_line(&self, typed: &str, known: &Table) -> Result<Table, Error> {
        let words = shlex::split(typed).filter(|words| !words.is_empty());
        let mut words = words.ok_or_else(|| {
            Error::Usage(format!(
                "--harness {typed:?} is no command line: are all quotes closed?"
            ))
        })?;
        let program = words.first().cloned().unwrap_or_default();
        let found = program_at(&program).map_err(|why| {
            let profiles = match known.is_empty() {
                true => "there are no profiles".to_owned(),
                false => {
                    let names: Vec<&str> = known.keys().map(String::as_str).collect();
                    format!("profiles are {}", names.join(", "))
                }
            };
            Error::Usage(format!(
                "--harness {typed:?}: {why}, and no profile has that name ({profiles})"
            ))
        })?;
        words[0] = found;
        let prompt = self.harness_prompt.to_possible_value();
        let prompt = prompt.as_ref().map_or("file", |value| value.get_name());
        Ok(profile(&words, prompt, &HARNESS_ROLES))
    }

    /// Adds the variables to those of the profile.
    fn pass_on(&self, profile: &mut Table) -> Result<(), String> {
        if let Some(name) = self
            .harness_env
            .iter()
            .find(|name| env::var_os(name).is_none())
        {
            return Err(format!(
                "--harness-env {name}: it is not set in this environment"
            ));
        }
        let names = profile
            .entry("env")
            .or_insert_with(|| Value::Array(Vec::new()));
        let names = names
            .as_array_mut()
            .ok_or("`env` is to be a list of names")?;
        for name in &self.harness_env {
            let name = Value::from(name.as_str());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(())
    }
}

fn free_name(taken: &Table) -> String {
    let mut name = PROFILE_NAME.to_owned();
    let mut n = 1;
    while taken.contains_key(&name) {
        n += 1;
        name = format!("{PROFILE_NAME}-{n}");
    }
    name
}

fn must_be_there(profile: &Table) -> Result<(), String> {
    let command = profile.get("command").and_then(Value::as_array);
    let program = command.and_then(|words| words.first()?.as_str());
    let program = program.ok_or("`command` is to be a list, with the program first")?;
    program_at(program).map(drop)
}

/// The program as the worker is to start it, from wherever: a path is meant from here, a name is looked
/// for.
fn program_at(program: &str) -> Result<String, String> {
    if !program.contains('/') {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path).any(|directory| is_program(&directory.join(program)));
        return match found {
            true => Ok(program.to_owned()),
            false => Err(format!("there is no program {program} in PATH")),
        };
    }
    let path = std::path::absolute(program).map_err(|error| format!("{program}: {error}"))?;
    match path.to_str() {
        Some(text) if is_program(&path) => Ok(text.to_owned()),
        Some(_) if path.exists() => Err(format!("{} can't be run", path.display())),
        Some(_) => Err(format!("there is no {}", path.display())),
        None => Err(format!("{} is no Unicode", path.display())),
    }
}

fn is_program(path: &Path) -> bool {
    const EXECUTABLE: u32 = 0o111;
    fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & EXECUTABLE != 0)
}

fn must_do_every_role(profiles: &Table) -> Result<(), Error> {
    let does = |role: &str| {
        let roles = profiles
            .values()
            .filter_map(|profile| profile.get("roles")?.as_array());
        roles.flatten().any(|other| other.as_str() == Some(role))
    };
    match HARNESS_ROLES.into_iter().find(|role| !does(role)) {
        None => Ok(()),
        Some(role) => Err(Error::Usage(format!(
            "no harness does the role {role}: add it to a profile's `roles`, or name one more --harness"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harness(harnesses: &[&str]) -> Harness {
        Harness {
            harnesses: harnesses.iter().map(|&typed| typed.to_owned()).collect(),
            harness_prompt: PromptBy::Stdin,
            harness_env: Vec::new(),
            // Never that of whoever runs the tests.
            profiles: Some(PathBuf::from("/dev/null")),
        }
    }

    fn words(profile: &Value) -> Vec<&str> {
        let words = profile["command"].as_array().unwrap();
        words.iter().filter_map(Value::as_str).collect()
    }

    #[test]
    fn a_command_line_is_split_as_a_shell_would_and_does_every_role() {
        let profiles = harness(&["sh -c 'exit \"$0\"' \"a b\"", "true"])
            .profiles()
            .unwrap();
        assert_eq!(
            words(&profiles["harness"]),
            ["sh", "-c", "exit \"$0\"", "a b"]
        );
        assert_eq!(words(&profiles["harness-2"]), ["true"]);
        assert_eq!(profiles["harness"]["prompt"].as_str(), Some("stdin"));
        assert_eq!(
            profiles["harness"]["roles"].as_array().unwrap().len(),
            HARNESS_ROLES.len()
        );
    }

    #[test]
    fn a_profile_is_taken_by_its_name_before_a_program() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("worker.toml");
        let roles = r#"["estimator", "implementer", "reviewer", "conflict_resolver", "escalator"]"#;
        let text = format!(
            "capacity = 7\n[harness.true]\ncommand = [\"sh\", \"x\"]\nroles = {roles}\nenv = [\"PATH\"]\n\
             [harness.half]\ncommand = [\"sh\"]\nroles = [\"reviewer\"]\n"
        );
        fs::write(&file, text).unwrap();
        let with_file = |harnesses: &[&str]| Harness {
            profiles: Some(file.clone()),
            harness_env: vec!["PATH".to_owned()],
            ..harness(harnesses)
        };
        let profiles = with_file(&["true"]).profiles().unwrap();
        assert_eq!(words(&profiles["true"]), ["sh", "x"]);
        assert_eq!(profiles["true"]["env"].as_array().unwrap().len(), 1);
        let refusal = |typed: &str| with_file(&[typed]).profiles().unwrap_err().message();
        let refused = refusal("half");
        assert!(refused.contains("the role estimator"), "{refused}");
        let refused = refusal("hlaf");
        assert!(refused.contains("profiles are half, true"), "{refused}");
    }

    #[test]
    fn what_can_not_be_run_is_refused_with_what_to_do() {
        let check = |harness: Harness, part: &str| {
            let refusal = harness.profiles().unwrap_err().message();
            assert!(refusal.contains(part), "{part:?} in {refusal}");
        };
        check(
            harness(&["no-such-program -x"]),
            "no program no-such-program in PATH",
        );
        check(harness(&["./no/such"]), "there is no /");
        check(harness(&["/etc/passwd"]), "/etc/passwd can't be run");
        check(harness(&["sh 'x"]), "are all quotes closed?");
        check(harness(&[""]), "no command line");
        let mut unset = harness(&["true"]);
        unset.harness_env = vec!["POINTSMAN_NO_SUCH".to_owned()];
        check(unset, "--harness-env POINTSMAN_NO_SUCH: it is not set");
        let mut missing = harness(&["true"]);
        missing.profiles = Some(PathBuf::from("/no/such.toml"));
        check(missing, "/no/such.toml");
    }
}
