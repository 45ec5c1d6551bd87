//! `--policy key=value`: bounds as people type them.

use pointsman_proto::v1;

use crate::name;

/// What may stand before the `=`; one help text and one error name them all.
pub(crate) const KEYS: &str = "max_tier, ci_red_rounds, review_rounds, conflict_rounds, \
ci_flake_retries, merge_rounds, head_moves, effect_tries, max_pickups, max_live_workflows (numbers); \
ci_flake_hard_ceiling, ci_optional, delete_merged_branches (true or false); ci_poll_deadline_seconds, \
ci_idle_deadline_seconds, ci_appear_deadline_seconds, merge_deadline_seconds, \
effect_deadline_seconds (seconds); flaky_checks (names with commas between); \
merge_method (merge, squash or fast_forward); \
lease_ttl.ROLE or lease_ttl.ROLE.TIER (seconds)";

/// One `key=value`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    key: String,
    value: String,
}

/// Reads one `key=value`, and refuses what no policy can take.
pub(crate) fn parse_setting(typed: &str) -> Result<Setting, String> {
    let (key, value) = typed.split_once('=').ok_or("takes key=value")?;
    let setting = Setting {
        key: key.trim().to_owned(),
        value: value.trim().to_owned(),
    };
    setting.apply(&mut v1::Policy::default())?;
    Ok(setting)
}

/// Reads a key alone; the exceptions from the times-to-live are one key.
pub(crate) fn parse_key(typed: &str) -> Result<String, String> {
    let known = KEYS.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    if known.clone().any(|key| key == typed && key.contains('_'))
        && !["lease_ttl", "fast_forward"].contains(&typed)
    {
        return Ok(typed.to_owned());
    }
    match typed {
        "lease_ttls" => Ok(typed.to_owned()),
        _ => Err(format!(
            "no such key; there are {KEYS}, and lease_ttls for all of the last"
        )),
    }
}

/// The fields that are set, by their names.
pub(crate) fn fields(settings: &[Setting]) -> Vec<String> {
    let name = |setting: &Setting| match setting.key.starts_with("lease_ttl.") {
        true => "lease_ttls".to_owned(),
        false => setting.key.clone(),
    };
    settings.iter().map(name).collect()
}

/// The policy of all settings; a later one of the same key wins. `None` where there are none.
pub(crate) fn policy(settings: &[Setting]) -> Result<Option<v1::Policy>, String> {
    if settings.is_empty() {
        return Ok(None);
    }
    let mut policy = v1::Policy::default();
    for setting in settings {
        setting.apply(&mut policy)?;
    }
    Ok(Some(policy))
}

impl Setting {
    fn apply(&self, policy: &mut v1::Policy) -> Result<(), String> {
        match self.key.as_str() {
            "max_tier" => policy.max_tier = Some(self.number()?),
            "ci_red_rounds" => policy.ci_red_rounds = Some(self.number()?),
            "review_rounds" => policy.review_rounds = Some(self.number()?),
            "conflict_rounds" => policy.conflict_rounds = Some(self.number()?),
            "ci_flake_retries" => policy.ci_flake_retries = Some(self.number()?),
            "merge_rounds" => policy.merge_rounds = Some(self.number()?),
            "head_moves" => policy.head_moves = Some(self.number()?),
            "effect_tries" => policy.effect_tries = Some(self.number()?),
            "max_pickups" => policy.max_pickups = Some(self.number()?),
            "max_live_workflows" => policy.max_live_workflows = Some(self.number()?),
            "ci_flake_hard_ceiling" => policy.ci_flake_hard_ceiling = Some(self.switch()?),
            "ci_optional" => policy.ci_optional = Some(self.switch()?),
            "delete_merged_branches" => policy.delete_merged_branches = Some(self.switch()?),
            "ci_poll_deadline_seconds" => policy.ci_poll_deadline_seconds = Some(self.seconds()?),
            "ci_idle_deadline_seconds" => policy.ci_idle_deadline_seconds = Some(self.seconds()?),
            "ci_appear_deadline_seconds" => {
                policy.ci_appear_deadline_seconds = Some(self.seconds()?);
            }
            "merge_deadline_seconds" => policy.merge_deadline_seconds = Some(self.seconds()?),
            "effect_deadline_seconds" => policy.effect_deadline_seconds = Some(self.seconds()?),
            "merge_method" => policy.merge_method = self.merge_method()?.into(),
            "flaky_checks" => policy.flaky_checks = self.names(),
            key => match key.strip_prefix("lease_ttl.") {
                Some(whose) => policy.lease_ttls.push(self.lease_ttl(whose)?),
                None => return Err(format!("no such key; there are {KEYS}")),
            },
        }
        Ok(())
    }

    fn lease_ttl(&self, whose: &str) -> Result<v1::LeaseTtl, String> {
        let (role, tier) = match whose.split_once('.') {
            Some((role, tier)) => (role, tier.parse().map_err(|_| "TIER is a number")?),
            None => (whose, 0),
        };
        Ok(v1::LeaseTtl {
            role: name::parse_role(role)?.into(),
            tier,
            seconds: self.number()?,
        })
    }

    fn merge_method(&self) -> Result<v1::MergeMethod, String> {
        match self.value.as_str() {
            "merge" => Ok(v1::MergeMethod::Merge),
            "squash" => Ok(v1::MergeMethod::Squash),
            "fast_forward" => Ok(v1::MergeMethod::FastForward),
            other => Err(format!(
                "merge_method takes merge, squash or fast_forward, not {other:?}"
            )),
        }
    }

    fn number(&self) -> Result<u32, String> {
        let parsed = self.value.parse();
        parsed.map_err(|_| format!("{} takes a number, not {:?}", self.key, self.value))
    }

    fn seconds(&self) -> Result<u64, String> {
        let parsed = self.value.parse();
        parsed.map_err(|_| format!("{} takes whole seconds, not {:?}", self.key, self.value))
    }

    fn switch(&self) -> Result<bool, String> {
        let parsed = self.value.parse();
        parsed.map_err(|_| format!("{} takes true or false, not {:?}", self.key, self.value))
    }

    fn names(&self) -> Vec<String> {
        let names = self.value.split(',').map(str::trim);
        names.filter(|n| !n.is_empty()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &[&str]) -> v1::Policy {
        let settings: Vec<_> = typed.iter().map(|t| parse_setting(t).unwrap()).collect();
        policy(&settings).unwrap().unwrap()
    }

    #[test]
    fn nothing_typed_is_the_masters_default() {
        assert_eq!(policy(&[]), Ok(None));
    }

    #[test]
    fn each_kind_of_value_is_read() {
        let read = parse(&[
            "max_tier=2",
            "ci_optional=true",
            "merge_deadline_seconds=3600",
            "flaky_checks=net-*, slow",
            "lease_ttl.implementer.2=1800",
            "lease_ttl.ci=60",
        ]);
        assert_eq!(read.max_tier, Some(2));
        assert_eq!(read.ci_optional, Some(true));
        assert_eq!(read.merge_deadline_seconds, Some(3600));
        assert_eq!(read.flaky_checks, ["net-*", "slow"]);
        let ttls: Vec<_> = read
            .lease_ttls
            .iter()
            .map(|t| (t.role(), t.tier, t.seconds))
            .collect();
        assert_eq!(
            ttls,
            [(v1::Role::Implementer, 2, 1800), (v1::Role::Ci, 0, 60)]
        );
        assert_eq!(read.review_rounds, None);
    }

    #[test]
    fn keys_alone_are_fields() {
        assert_eq!(parse_key("max_tier").unwrap(), "max_tier");
        assert_eq!(parse_key("lease_ttls").unwrap(), "lease_ttls");
        for key in ["lease_ttl", "numbers", "tiers", "", "fast_forward"] {
            assert!(parse_key(key).is_err(), "{key}");
        }
        let settings = ["max_tier=2", "lease_ttl.ci=60"].map(|t| parse_setting(t).unwrap());
        assert_eq!(fields(&settings), ["max_tier", "lease_ttls"]);
    }

    #[test]
    fn every_documented_key_is_taken() {
        let keys = KEYS.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
        let words = ["lease_ttl", "fast_forward"];
        for key in keys.filter(|key| key.contains('_') && !words.contains(key)) {
            let taken = ["1", "true", "squash"]
                .iter()
                .any(|v| parse_setting(&format!("{key}={v}")).is_ok());
            assert!(taken, "{key}");
        }
    }

    #[test]
    fn the_refusal_says_what_is_taken() {
        let check = |typed: &str, part: &str| {
            let refusal = parse_setting(typed).unwrap_err();
            assert!(refusal.contains(part), "{typed}: {refusal}");
        };
        check("max_tier", "key=value");
        check("tiers=3", "there are max_tier, ");
        check("max_tier=-1", "takes a number");
        check("ci_optional=yes", "true or false");
        check("merge_method=rebase", "merge, squash or fast_forward");
        check("lease_ttl.boss=3", "conflict_resolver");
        check("lease_ttl.ci.x=3", "TIER");
    }
}
