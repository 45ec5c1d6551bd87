//! Fields of requests: each check names its field and says what would be right.

use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

/// Longest reason, in bytes.
pub(super) const MAX_REASON: usize = 1000;
/// Longest name of a repository or a check, in bytes.
pub(super) const MAX_NAME: usize = 100;
/// Longest label, in bytes.
pub(super) const MAX_LABEL: usize = 100;
/// Longest branch, path, URL or command, in bytes.
pub(super) const MAX_LINE: usize = 4096;
/// Longest title of an item, in bytes.
pub(super) const MAX_TITLE: usize = 256;
/// Longest body of an item, plan, notes or reason of a harness, in bytes.
pub(super) const MAX_TEXT: usize = 65_536;
/// Most entries of a list inside a request.
pub(super) const MAX_LIST: usize = 1000;
/// Most checks of one repository: each is an attempt on every head.
pub(super) const MAX_CHECKS: usize = 32;
/// Largest page of repositories and workflows; [`DEFAULT_PAGE`] is taken for 0.
pub(super) const MAX_PAGE: u32 = 500;
pub(super) const DEFAULT_PAGE: u32 = 100;
/// Largest page of items without their bodies, but with up to a hundred labels of a hundred bytes each; an
/// answer of 4 MiB takes that many.
pub(super) const MAX_ITEM_PAGE: u32 = 200;
/// Largest page of comments, each of up to [`MAX_TEXT`]; an answer of 4 MiB takes that many.
pub(super) const MAX_COMMENT_PAGE: u32 = 50;

/// A field that can't be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldError {
    field: String,
    reason: String,
}

impl FieldError {
    pub(super) fn new(field: &str, reason: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            reason: reason.into(),
        }
    }
}

impl From<FieldError> for Status {
    fn from(error: FieldError) -> Self {
        let FieldError { field, reason } = error;
        let message = format!("{field}: {reason}");
        Status::with_error_details(
            tonic::Code::InvalidArgument,
            message,
            ErrorDetails::with_bad_request_violation(field, reason),
        )
    }
}

/// A text that must be there, of at most `max` bytes.
pub(super) fn required<'a>(field: &str, text: &'a str, max: usize) -> Result<&'a str, FieldError> {
    if text.trim().is_empty() {
        return Err(FieldError::new(
            field,
            format!("is empty; 1 to {max} bytes are expected"),
        ));
    }
    optional(field, text, max)
}

/// A text of at most `max` bytes.
pub(super) fn optional<'a>(field: &str, text: &'a str, max: usize) -> Result<&'a str, FieldError> {
    if text.len() > max {
        let n = text.len();
        return Err(FieldError::new(
            field,
            format!("is {n} bytes long; at most {max} are taken"),
        ));
    }
    if text.contains('\0') {
        return Err(FieldError::new(
            field,
            "holds a NUL byte; text without one is expected",
        ));
    }
    Ok(text)
}

/// A text that must be there, on one line.
pub(super) fn line<'a>(field: &str, text: &'a str, max: usize) -> Result<&'a str, FieldError> {
    let text = required(field, text, max)?;
    if text.chars().any(char::is_control) {
        return Err(FieldError::new(
            field,
            "holds a control character; one line is expected",
        ));
    }
    Ok(text)
}

/// A name of a repository.
pub(super) fn repository_name<'a>(field: &str, name: &'a str) -> Result<&'a str, FieldError> {
    let name = required(field, name, MAX_NAME)?;
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !starts_well || !name.chars().all(is_allowed) {
        return Err(FieldError::new(
            field,
            "holds something else than a-z, 0-9, '-', '_', '.', '/', or does not start with a letter or digit",
        ));
    }
    Ok(name)
}

/// A name of a check: no pattern's `*` or `?`, and no comma, which separates names on a command line.
pub(super) fn check_name<'a>(field: &str, name: &'a str) -> Result<&'a str, FieldError> {
    let name = required(field, name, MAX_NAME)?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(is_allowed) {
        return Err(FieldError::new(
            field,
            "holds something else than letters, digits, '-', '_', '.', '/', or does not start with a letter or digit",
        ));
    }
    Ok(name)
}

/// A branch: what git takes as one, and nothing that git could take for an option or a pattern.
pub(super) fn branch<'a>(field: &str, name: &'a str) -> Result<&'a str, FieldError> {
    let name = line(field, name, MAX_LINE)?;
    let is_bad = name.starts_with(['-', '/', '.'])
        || name.ends_with(['/', '.'])
        || name.ends_with(".lock")
        || name.contains("..")
        || name.contains("//")
        || name.contains("@{")
        || name.contains([' ', '~', '^', ':', '?', '*', '[', '\\']);
    if is_bad {
        return Err(FieldError::new(
            field,
            "is no name of a branch that git takes",
        ));
    }
    Ok(name)
}

/// Where git fetches from: not an option, and not a helper that runs a command.
pub(super) fn git_url<'a>(field: &str, url: &'a str) -> Result<&'a str, FieldError> {
    let url = line(field, url, MAX_LINE)?;
    let is_address = url.starts_with('/') || url.contains(':');
    if url.starts_with('-') || url.contains("::") || !is_address {
        return Err(FieldError::new(
            field,
            "is neither an absolute path nor a URL of the form file://, http://, https://, ssh:// or host:path",
        ));
    }
    let authority = url
        .split_once("://")
        .map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    let has_secret = authority
        .and_then(|authority| authority.rsplit_once('@'))
        .is_some_and(|(user, _)| user.contains(':'));
    if has_secret {
        return Err(FieldError::new(
            field,
            "holds a password, which would be shown to whoever lists repositories; a URL without one is expected",
        ));
    }
    Ok(url)
}

/// An id in the usual text form of a UUID.
pub(super) fn id<T>(field: &str, text: &str) -> Result<T, FieldError>
where
    T: std::str::FromStr,
{
    text.parse()
        .map_err(|_| FieldError::new(field, format!("is {text:?}; a UUID is expected")))
}

/// An id that may be left out.
pub(super) fn optional_id<T>(field: &str, text: &str) -> Result<Option<T>, FieldError>
where
    T: std::str::FromStr,
{
    if text.is_empty() {
        return Ok(None);
    }
    id(field, text).map(Some)
}

/// A number in a range.
pub(super) fn within(field: &str, value: u32, least: u32, most: u32) -> Result<u32, FieldError> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(FieldError::new(
            field,
            format!("is {value}; {least} to {most} is expected"),
        ))
    }
}

/// A number that the store can hold.
pub(super) fn stored(field: &str, value: u64) -> Result<u64, FieldError> {
    const MOST: u64 = i64::MAX.unsigned_abs();
    if value > MOST {
        return Err(FieldError::new(
            field,
            format!("is {value}; 0 to {MOST} is expected"),
        ));
    }
    Ok(value)
}

/// The size of a page: 0 takes `default`.
pub(super) fn page_size(value: u32, default: u32, most: u32) -> Result<u32, FieldError> {
    if value == 0 {
        return Ok(default);
    }
    within("page_size", value, 1, most)
}

/// A list of at most `max` entries.
pub(super) fn list<'a, T>(field: &str, list: &'a [T], max: usize) -> Result<&'a [T], FieldError> {
    if list.len() > max {
        let n = list.len();
        return Err(FieldError::new(
            field,
            format!("has {n} entries; at most {max} are taken"),
        ));
    }
    Ok(list)
}

/// A message that must be there.
pub(super) fn present<T>(field: &str, value: Option<T>) -> Result<T, FieldError> {
    value.ok_or_else(|| FieldError::new(field, "is not set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(result: Result<T, FieldError>, part: &str) {
        let error = result.expect_err("it is refused");
        assert!(error.reason.contains(part), "{error:?}");
    }

    #[test]
    fn texts_are_bounded_at_their_edge() {
        let edge = "x".repeat(MAX_REASON);
        assert_eq!(required("reason", &edge, MAX_REASON), Ok(edge.as_str()));
        refused(
            required("reason", &format!("{edge}x"), MAX_REASON),
            "1001 bytes",
        );
        refused(required("reason", "  ", MAX_REASON), "is empty");
        refused(optional("body", "a\0b", MAX_TEXT), "NUL");
    }

    #[test]
    fn pages_are_bounded_at_their_edge() {
        assert_eq!(page_size(0, DEFAULT_PAGE, MAX_PAGE), Ok(DEFAULT_PAGE));
        assert_eq!(page_size(MAX_PAGE, DEFAULT_PAGE, MAX_PAGE), Ok(MAX_PAGE));
        refused(page_size(MAX_PAGE + 1, DEFAULT_PAGE, MAX_PAGE), "1 to 500");
    }

    #[test]
    fn lists_are_bounded_at_their_edge() {
        assert!(list("sessions", &[0; MAX_LIST], MAX_LIST).is_ok());
        refused(
            list("sessions", &[0; MAX_LIST + 1], MAX_LIST),
            "1001 entries",
        );
    }

    #[test]
    fn branches_that_git_would_misread_are_refused() {
        for name in ["main", "feature/a.b", "pointsman/0192"] {
            assert_eq!(branch("base_ref", name), Ok(name));
        }
        for name in [
            "--upload-pack=x",
            "a..b",
            "a b",
            "a:b",
            "/a",
            "a.lock",
            "refs/*",
        ] {
            refused(branch("base_ref", name), "no name of a branch");
        }
    }

    #[test]
    fn urls_that_run_commands_are_refused() {
        for url in ["/srv/git/a.git", "https://host/a.git", "git@host:a.git"] {
            assert_eq!(git_url("git_url", url), Ok(url));
        }
        for url in ["--upload-pack=touch", "ext::sh -c id", "./demo.git", "demo"] {
            refused(
                git_url("git_url", url),
                "neither an absolute path nor a URL",
            );
        }
    }

    #[test]
    fn urls_with_passwords_are_refused() {
        for url in ["https://a@host/x.git", "ssh://git@host:22/x.git"] {
            assert_eq!(git_url("git_url", url), Ok(url));
        }
        refused(git_url("git_url", "https://a:b@host/x.git"), "password");
    }

    #[test]
    fn names_of_checks_are_narrow() {
        for name in ["ci", "Unit-Tests", "lint/rust_1.x", "1"] {
            assert_eq!(check_name("name", name), Ok(name));
        }
        for name in ["-x", "unit tests", "a,b", "net-*", "é", "a=b"] {
            refused(check_name("name", name), "letters, digits");
        }
    }

    #[test]
    fn names_of_repositories_are_narrow() {
        for name in ["demo", "owner/name", "a-b_c.d", "1"] {
            assert_eq!(repository_name("name", name), Ok(name));
        }
        for name in ["Demo", "-x", "../x", "a b"] {
            refused(repository_name("name", name), "a-z");
        }
    }
}
