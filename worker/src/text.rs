//! Bounding texts of others by bytes, without breaking a character.

/// The start of `text`, at most `max` bytes, followed by `mark` where something was cut off.
pub(crate) fn head(text: &str, max: usize, mark: &str) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    format!("{}{mark}", &text[..text.floor_char_boundary(max)])
}

/// The end of `text`, at most `max` bytes, after `mark` where something was cut off.
pub(crate) fn tail(text: &str, max: usize, mark: &str) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    format!(
        "{mark}{}",
        &text[text.ceil_char_boundary(text.len() - max)..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_at_the_bound_is_whole_and_one_over_it_is_cut() {
        assert_eq!(head("abcd", 4, "…"), "abcd");
        assert_eq!(head("abcde", 4, "…"), "abcd…");
        assert_eq!(tail("abcd", 4, "…"), "abcd");
        assert_eq!(tail("abcde", 4, "…"), "…bcde");
    }

    #[test]
    fn characters_stay_whole() {
        assert_eq!(head("aéé", 2, ""), "a");
        assert_eq!(tail("ééa", 2, ""), "a");
    }
}
