//! All that the scripted harness can do to a program: put a step at the end of its pipeline.

use std::collections::BTreeSet;

/// The program that it works on.
pub(super) const PROGRAM: &str = "slug.sh";

/// Something that the program may be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Skill {
    JoinWords,
    DropPunctuation,
}

impl Skill {
    const ALL: [Self; 2] = [Self::JoinWords, Self::DropPunctuation];

    /// The skills that a text asks for.
    pub(super) fn named_in(text: &str) -> BTreeSet<Self> {
        let text = text.to_lowercase();
        let all = Self::ALL.into_iter();
        all.filter(|skill| text.contains(skill.word())).collect()
    }

    /// The word by which people ask for it.
    const fn word(self) -> &'static str {
        match self {
            Self::JoinWords => "space",
            Self::DropPunctuation => "punctuation",
        }
    }

    /// What the program does with it, for people. Says the word, so that a plan is understood as well
    /// as the issue.
    pub(super) const fn purpose(self) -> &'static str {
        match self {
            Self::JoinWords => "put a hyphen for spaces",
            Self::DropPunctuation => "leave punctuation out",
        }
    }

    const fn step(self) -> &'static str {
        match self {
            Self::JoinWords => r"tr -s ' ' '-'",
            Self::DropPunctuation => r"tr -cd 'a-z0-9 \n-'",
        }
    }

    /// Whether the program has it already.
    pub(super) fn is_in(self, program: &str) -> bool {
        program.contains(self.step())
    }

    /// The program with this step at its end.
    pub(super) fn add_to(self, program: &str) -> String {
        format!("{} |\n    {}\n", program.trim_end(), self.step())
    }
}

/// One side's program with the steps of the other.
pub(super) fn merged(ours: &str, theirs: &str) -> String {
    let missing = Skill::ALL
        .into_iter()
        .filter(|skill| skill.is_in(ours) && !skill.is_in(theirs));
    let merged = format!("{}\n", theirs.trim_end());
    missing.fold(merged, |program, skill| skill.add_to(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "#!/bin/sh\nprintf '%s\\n' \"$1\"\n";

    #[test]
    fn a_purpose_asks_for_its_own_skill_alone() {
        for skill in Skill::ALL {
            assert_eq!(Skill::named_in(skill.purpose()), BTreeSet::from([skill]));
        }
    }

    #[test]
    fn a_step_is_put_at_the_end() {
        let program = Skill::JoinWords.add_to(BARE);
        assert_eq!(
            program,
            "#!/bin/sh\nprintf '%s\\n' \"$1\" |\n    tr -s ' ' '-'\n"
        );
        assert!(Skill::JoinWords.is_in(&program));
        assert!(!Skill::DropPunctuation.is_in(&program));
    }

    #[test]
    fn a_merge_has_the_steps_of_both() {
        let (ours, theirs) = (
            Skill::JoinWords.add_to(BARE),
            Skill::DropPunctuation.add_to(BARE),
        );
        let merged = merged(&ours, &theirs);
        assert!(
            Skill::ALL.iter().all(|skill| skill.is_in(&merged)),
            "{merged}"
        );
        assert_eq!(super::merged(&merged, &merged), merged);
    }
}
