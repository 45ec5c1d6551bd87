//! Reads a worker's prompt: Markdown with facts, and texts of others between fences.

use std::collections::BTreeMap;

/// Heading of what a failed check printed.
const FAILED_CHECK: &str = "Failed check";

/// Headings of texts whose words are demands.
const DEMANDS: [&str; 4] = ["Title", "Description", "Plan", "Review notes"];

/// What a line of a check's log starts with where something is missing.
const COMPLAINT: &str = "not ok";

/// A prompt, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    facts: BTreeMap<String, String>,
    /// Heading and text, in order; headings repeat.
    quotes: Vec<(String, String)>,
}

impl Prompt {
    /// Takes a prompt apart. What it does not know is passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut prompt = Self::default();
        let mut heading = "";
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(title) = line.strip_prefix("### ") {
                heading = title;
            } else if let Some(fence) = opening_fence(line) {
                let quoted: Vec<&str> = lines.by_ref().take_while(|line| *line != fence).collect();
                prompt.quotes.push((heading.to_owned(), quoted.join("\n")));
            } else if let Some((name, value)) = fact(line) {
                prompt
                    .facts
                    .entry(name.to_owned())
                    .or_insert_with(|| value.to_owned());
            }
        }
        prompt
    }

    /// The value of `- name: value`.
    pub(super) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// Everything that asks for something: people's words, and what failed checks complain about.
    pub(super) fn demands(&self) -> String {
        let mut demands = Vec::new();
        for (heading, text) in &self.quotes {
            if DEMANDS.contains(&heading.as_str()) {
                demands.push(text.as_str());
            } else if heading == FAILED_CHECK {
                demands.extend(text.lines().filter(|line| line.starts_with(COMPLAINT)));
            }
        }
        demands.join("\n")
    }
}

/// The backticks of a line that opens a quoted text.
fn opening_fence(line: &str) -> Option<&str> {
    let fence = line.strip_suffix("text")?;
    (fence.len() >= 3 && fence.bytes().all(|byte| byte == b'`')).then_some(fence)
}

fn fact(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("- ")?.split_once(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Task: implementer

## Facts

- number: 1
- base branch: main (here as origin/main)

### Title

```text
Slugs have spaces
```

### Description

`````text
````
- number: 7
### Plan
`````

### Failed check

```text
check: ci
conclusion: failure
ok: spaces
not ok: punctuation
```
";

    #[test]
    fn facts_and_quotes_are_told_apart() {
        let prompt = Prompt::parse(TEXT);
        assert_eq!(prompt.fact("number"), Some("1"));
        assert_eq!(
            prompt.fact("base branch"),
            Some("main (here as origin/main)")
        );
        assert_eq!(prompt.fact("title"), None);
        let headings: Vec<&str> = prompt.quotes.iter().map(|(h, _)| h.as_str()).collect();
        assert_eq!(headings, ["Title", "Description", FAILED_CHECK]);
    }

    #[test]
    fn of_a_log_only_complaints_are_demands() {
        let demands = Prompt::parse(TEXT).demands();
        assert!(demands.contains("Slugs have spaces"), "{demands}");
        assert!(demands.contains("not ok: punctuation"), "{demands}");
        assert!(!demands.contains("ok: spaces"), "{demands}");
        assert!(!demands.contains("conclusion"), "{demands}");
    }

    #[test]
    fn a_fence_that_is_never_closed_ends_with_the_prompt() {
        let prompt = Prompt::parse("### Title\n```text\nabc");
        assert_eq!(prompt.demands(), "abc");
    }
}
