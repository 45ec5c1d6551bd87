//! What a harness's verdict becomes (state-machine table "verdicts").

use super::{Context, Draft};
use crate::domain::{
    attempt::Role,
    decision::{Note, Outcome, Refusal},
    effect::Effect,
    ids::CommitId,
    transitions::{Event, IllegalTransition, State, events_from},
    verdict::Verdict,
    workflow::{Kind, MAX_FACTS, Progress, kept_text},
};

impl<'a> Context<'a> {
    /// Decides about a verdict, against the state under a pause where there is one.
    pub(super) fn verdict(
        self,
        verdict: Verdict,
        commit: Option<CommitId>,
    ) -> Result<Outcome, Refusal> {
        let state = self.workflow.underlying_state();
        let role = self.attempt_role(state, &verdict)?;
        if !verdict.is_allowed(role, self.workflow.kind) {
            return Err(Refusal::VerdictNotAllowed {
                verdict: verdict.name(),
                role,
                kind: self.workflow.kind,
            });
        }
        match verdict {
            Verdict::Ready { tier, plan } => self.ready(tier, plan),
            Verdict::ChangePresent => self
                .underlying_draft()
                .with(|p| p.head = p.head.take().or(commit))
                .take(Event::AnalysisChangePresent),
            Verdict::Declined { reason } => self
                .underlying_draft()
                .because(reason)
                .take(Event::AnalysisDeclined),
            Verdict::Unsure { reason } => self.failing(reason, Event::AnalysisFailed),
            Verdict::Changed {
                commit: to,
                summary,
            } => self.changed(commit, to, summary),
            Verdict::NoChange { reason } => match self.workflow.kind {
                Kind::PullRequest => self
                    .underlying_draft()
                    .because(reason)
                    .with(|p| p.head = p.head.take().or(commit))
                    .take(Event::ChangePushed),
                Kind::Issue => self.failing(reason, Event::ImplementationFailed),
            },
            Verdict::Failed { reason } => self.failing(reason, Event::ImplementationFailed),
            Verdict::Conflict { paths } => self.conflict(paths),
            Verdict::Resolved { commit: to } => self.resolved(commit, to),
            Verdict::Unresolved { reason } => {
                let failure = kept_text(reason.clone());
                self.conflict_round_with(reason, |p| push(&mut p.facts.earlier_failures, failure))
            }
            Verdict::Retry { plan } => self.retry(plan),
            Verdict::GiveUp { reason } => self
                .underlying_draft()
                .because(reason)
                .take(Event::EscalationTiersExhausted),
            Verdict::Approve { .. } | Verdict::RequestChanges { .. } | Verdict::Reject { .. }
                if !self.is_for_head(commit.as_ref()) =>
            {
                self.superseded(self.workflow.progress().head.clone())
            }
            Verdict::Approve { notes } => self
                .underlying_draft()
                .because(notes)
                .fact("head", commit.as_ref().map(CommitId::as_str))
                .with(|p| p.facts.review_notes = None)
                .take(Event::ReviewApproved),
            Verdict::RequestChanges { notes } => self.request_changes(notes),
            Verdict::Reject { reason } => self
                .underlying_draft()
                .with(|p| p.facts.review_notes = Some(reason.clone()))
                .because(reason)
                .take(Event::ReviewRejected),
        }
    }

    /// A review counts for the recorded head only.
    fn is_for_head(self, reviewed: Option<&CommitId>) -> bool {
        reviewed.is_some() && self.workflow.progress().head.as_ref() == reviewed
    }

    /// The role of the attempt in `state`. Where none runs, the verdict has no row.
    fn attempt_role(self, state: State, verdict: &Verdict) -> Result<Role, Refusal> {
        state.role().ok_or_else(|| {
            Refusal::from(IllegalTransition {
                kind: self.workflow.kind,
                state,
                event: first_event(verdict),
                legal: events_from(self.workflow.kind, state),
            })
        })
    }

    fn ready(self, tier: Option<u32>, plan: String) -> Result<Outcome, Refusal> {
        let present = self.workflow.progress().tier;
        let wanted = tier.unwrap_or(present).min(self.policy.max_tier);
        let tier = wanted.max(present);
        self.underlying_draft()
            .fact("tier", tier)
            .with(|p| {
                raise_tier(p, tier);
                p.facts.plan = Some(plan);
            })
            .take(Event::AnalysisReady)
    }

    /// A verdict that sends the work on as a failure; the next harness learns why.
    fn failing(self, reason: String, event: Event) -> Result<Outcome, Refusal> {
        self.underlying_draft()
            .with(|p| push(&mut p.facts.earlier_failures, kept_text(reason.clone())))
            .because(reason)
            .take(event)
    }

    fn changed(
        self,
        leased: Option<CommitId>,
        to: CommitId,
        summary: String,
    ) -> Result<Outcome, Refusal> {
        let offered = to.clone();
        let effect = match (self.workflow.kind, leased) {
            (Kind::PullRequest, Some(from)) => Effect::MoveHead { from, to },
            (Kind::PullRequest, None) => return Err(self.no_expected_head()),
            (Kind::Issue, _) => Effect::OpenPullRequest {
                head_ref: self.workflow.head_ref.clone(),
                commit: to,
            },
        };
        Ok(self
            .underlying_draft()
            .because(summary)
            .with(|p| p.facts.offered_commit = Some(offered))
            .wishing(effect))
    }

    fn no_expected_head(self) -> Refusal {
        Refusal::NotPossible {
            action: "moving a head from no commit",
            state: self.workflow.state(),
        }
    }

    fn resolved(self, leased: Option<CommitId>, to: Option<CommitId>) -> Result<Outcome, Refusal> {
        match (self.workflow.kind, leased, to) {
            (Kind::PullRequest, Some(from), Some(to)) => Ok(self
                .underlying_draft()
                .with(|p| p.facts.offered_commit = Some(to.clone()))
                .wishing(Effect::MoveHead { from, to })),
            (Kind::PullRequest, None, Some(_)) => Err(self.no_expected_head()),
            // An issue has no branch yet: the commit is kept, and the next implementer starts from it.
            (Kind::Issue, _, Some(to)) => self.conflict_round_with(String::new(), |p| {
                p.facts.kept_commit = Some(to);
                p.facts.conflict_paths.clear();
            }),
            (_, _, None) => self.conflict_round_with(String::new(), |_| {}),
        }
    }

    pub(super) fn conflict_round_with(
        self,
        reason: String,
        change: impl FnOnce(&mut Progress),
    ) -> Result<Outcome, Refusal> {
        let event = match self.workflow.progress().counters.conflict_rounds {
            rounds if rounds >= self.policy.conflict_rounds => Event::ConflictRoundsExhausted,
            0 | 1 => Event::ConflictRoundFirst,
            2 => Event::ConflictRoundSecond,
            3.. => Event::ConflictRoundsExhausted,
        };
        self.underlying_draft()
            .because(reason)
            .with(change)
            .take(event)
    }

    fn retry(self, plan: String) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        if progress.tier >= self.policy.max_tier {
            return self
                .underlying_draft()
                .because(format!("tier {} is the highest", progress.tier))
                .take(Event::EscalationTiersExhausted);
        }
        let tier = progress.tier + 1;
        self.underlying_draft()
            .fact("tier", tier)
            .with(|p| {
                raise_tier(p, tier);
                p.facts.plan = Some(plan);
            })
            .take(Event::EscalationTierRaised)
    }

    fn request_changes(self, notes: String) -> Result<Outcome, Refusal> {
        let spent = self.workflow.progress().counters.review_rounds;
        let draft = self
            .underlying_draft()
            .because(notes.clone())
            .with(|p| p.facts.review_notes = Some(notes));
        if spent >= self.policy.review_rounds {
            return draft
                .fact("review_rounds", spent)
                .take(Event::ReviewRejected);
        }
        draft
            .with(|p| p.counters.review_rounds += 1)
            .take(Event::ReviewChangesRequested)
    }

    /// The work of an attempt can't be used, since the branch is elsewhere: nobody's fault, but counted,
    /// so that a bot that pushes for ever keeps nobody busy for ever. The commit that was offered is
    /// named to the next attempt, which starts from `head`.
    pub(super) fn superseded(self, head: Option<CommitId>) -> Result<Outcome, Refusal> {
        let state = self.workflow.underlying_state();
        let progress = self.workflow.progress();
        let moves = progress.counters.head_moves;
        let work = progress.facts.offered_commit.clone();
        let draft = self
            .underlying_draft()
            .fact("head", head.as_ref().map(CommitId::as_str))
            .fact("superseded", work.as_ref().map(CommitId::as_str))
            .fact("head_moves", moves)
            .with(|p| {
                p.head = head;
                p.facts.kept_commit = None;
                if let Some(work) = work {
                    push(&mut p.facts.superseded_commits, work);
                }
            })
            .superseding();
        if moves >= self.policy.head_moves {
            let draft = draft.because(format!("the head moved {moves} times already"));
            let has_own_row = state == State::Reviewing;
            return draft.take(if has_own_row {
                Event::HeadMovesExhausted
            } else {
                Event::PickupExhausted
            });
        }
        Ok(draft
            .because("the branch was moved by somebody else".to_owned())
            .with(|p| p.counters.head_moves += 1)
            .note_closing_effect(Note::AttemptSuperseded))
    }

    /// Ends the state by the row that stands for every spent counter.
    pub(super) fn spent(self, state: State, reason: String) -> Result<Outcome, Refusal> {
        match super::spent_exit(state) {
            Some(event) => self.underlying_draft().because(reason).take(event),
            None => Err(Refusal::NotPossible {
                action: "ending a spent counter",
                state,
            }),
        }
    }
}

impl Draft<'_> {
    /// Accepts the verdict and leaves the workflow where it is until the forge matches the wish.
    fn wishing(self, effect: Effect) -> Outcome {
        self.fact("effect", effect.name())
            .opening(effect)
            .note(Note::EffectOpened)
    }
}

/// A tier never goes down; a higher one begins with its own counters.
fn raise_tier(progress: &mut Progress, tier: u32) {
    if tier > progress.tier {
        progress.tier = tier;
        progress.counters.ci_red_rounds = 0;
        progress.counters.review_rounds = 0;
    }
}

/// Adds to a list of facts, which keeps its newest entries.
pub(super) fn push<T>(list: &mut Vec<T>, entry: T) {
    list.push(entry);
    if list.len() > MAX_FACTS {
        list.remove(0);
    }
}

/// The event that a verdict would have become, for the refusal's text.
fn first_event(verdict: &Verdict) -> Event {
    match verdict {
        Verdict::Ready { .. } => Event::AnalysisReady,
        Verdict::ChangePresent => Event::AnalysisChangePresent,
        Verdict::Declined { .. } => Event::AnalysisDeclined,
        Verdict::Unsure { .. } => Event::AnalysisFailed,
        Verdict::Changed { .. } | Verdict::NoChange { .. } => Event::ChangePushed,
        Verdict::Failed { .. } => Event::ImplementationFailed,
        Verdict::Conflict { .. } => Event::ConflictDetected,
        Verdict::Resolved { .. } | Verdict::Unresolved { .. } => Event::ConflictRoundFirst,
        Verdict::Retry { .. } => Event::EscalationTierRaised,
        Verdict::GiveUp { .. } => Event::EscalationTiersExhausted,
        Verdict::Approve { .. } => Event::ReviewApproved,
        Verdict::RequestChanges { .. } => Event::ReviewChangesRequested,
        Verdict::Reject { .. } => Event::ReviewRejected,
    }
}
