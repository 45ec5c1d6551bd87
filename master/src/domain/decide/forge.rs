//! What is seen on the forge, and what became of our wishes there.

use super::{Context, Draft};
use crate::domain::{
    ci::{CheckFailure, CiReading},
    decision::{
        Attempts, EffectResult, LabelState, Note, Outcome, Refusal, UpstreamFact, kept_failures,
    },
    effect::Effect,
    ids::CommitId,
    transitions::{Event, OutOfBand, State},
    workflow::{Kind, MAX_FACTS, Pause, PausedBy, Upstream},
};

impl<'a> Context<'a> {
    /// Closes the open effect and applies what it led to.
    pub(super) fn effect(self, result: EffectResult) -> Result<Outcome, Refusal> {
        let state = self.workflow.underlying_state();
        match result {
            EffectResult::HeadMoved { head } => self.head_moved(state, head),
            EffectResult::PullRequestOpened { number, head } => self
                .underlying_draft()
                .fact("pull_request", number)
                .fact("head", head.as_str())
                .with(|p| p.pull_request = Some(number))
                .take(Event::PrCreated),
            EffectResult::ChecksRerun if state != State::AwaitingCi => {
                Err(self.no_effect_there(state))
            }
            EffectResult::ChecksRerun => Ok(self
                .underlying_draft()
                .note_closing_effect(Note::ChecksRerun)),
            EffectResult::Merged { commit } => self
                .underlying_draft()
                .fact("merged_commit", commit.as_str())
                .with(|p| p.merged_commit = Some(commit))
                .take(Event::MergeSucceeded),
            EffectResult::Superseded { head } => self.effect_superseded(state, head),
            EffectResult::MergeBlocked { reason } => self.merge_blocked(reason, None),
            EffectResult::MergeConflict { .. } if state != State::Merging => {
                Err(self.no_effect_there(state))
            }
            EffectResult::MergeConflict { paths } => self.conflict(paths),
            EffectResult::MergeRefused { reason } => self
                .underlying_draft()
                .because(reason)
                .take(Event::MergeRefused),
            EffectResult::Spent { .. } if !may_have_effect(state) => {
                Err(self.no_effect_there(state))
            }
            EffectResult::Spent { reason } => self.spent(state, reason),
        }
    }

    fn no_effect_there(self, state: State) -> Refusal {
        Refusal::NotPossible {
            action: "closing such an effect",
            state,
        }
    }

    fn head_moved(self, state: State, head: CommitId) -> Result<Outcome, Refusal> {
        if state == State::ConflictResolving && self.workflow.kind == Kind::PullRequest {
            return self.conflict_round_with(String::new(), |p| {
                p.head = Some(head);
                p.facts.conflict_paths.clear();
            });
        }
        self.underlying_draft()
            .fact("head", head.as_str())
            .with(|p| p.head = Some(head))
            .take(Event::ChangePushed)
    }

    fn effect_superseded(self, state: State, head: CommitId) -> Result<Outcome, Refusal> {
        match state {
            State::Merging => self.merge_blocked(format!("the head moved to {head}"), Some(head)),
            State::AwaitingCi => self.wait_restarted(head),
            State::Implementing | State::ConflictResolving => self.superseded(Some(head)),
            State::Discovered
            | State::Analyzing
            | State::Escalating
            | State::Reviewing
            | State::Paused
            | State::Merged
            | State::CreatedPr
            | State::Abandoned
            | State::Stuck => Err(self.no_effect_there(state)),
        }
    }

    fn merge_blocked(self, reason: String, head: Option<CommitId>) -> Result<Outcome, Refusal> {
        let rounds = self.workflow.progress().counters.merge_rounds;
        let draft = self.underlying_draft().because(reason);
        if rounds >= self.policy.merge_rounds {
            return draft.fact("merge_rounds", rounds).take(Event::MergeRefused);
        }
        draft
            .with(|p| {
                p.counters.merge_rounds += 1;
                p.head = head.or_else(|| p.head.take());
            })
            .take(Event::MergeBlocked)
    }

    /// Decides about the checks of `head`; a reading for another head is old news. Whoever reads checks
    /// has looked for conflicts before, and found none.
    pub(super) fn ci(self, head: &CommitId, reading: CiReading) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        if progress.state != State::AwaitingCi || progress.head.as_ref() != Some(head) {
            return Ok(Outcome::Unchanged);
        }
        match reading {
            CiReading::Pending => Ok(Outcome::Unchanged),
            CiReading::Green => self
                .draft()
                .fact("head", head.as_str())
                .with(|p| {
                    p.facts.ci_failures.clear();
                    p.facts.conflict_paths.clear();
                })
                .take(Event::CiGreen),
            CiReading::Red { is_flaky, failures } => self.red(head, is_flaky, failures),
            CiReading::Exhausted { reason } => {
                self.draft().because(reason).take(Event::CiPollingExhausted)
            }
        }
    }

    fn red(
        self,
        head: &CommitId,
        is_flaky: bool,
        failures: Vec<CheckFailure>,
    ) -> Result<Outcome, Refusal> {
        let counters = self.workflow.progress().counters;
        let names: Vec<String> = failures
            .iter()
            .map(|f| format!("{} ({})", f.name, f.conclusion))
            .collect();
        let draft = self
            .draft()
            .because(format!("red: {}", names.join(", ")))
            .fact("head", head.as_str())
            .fact("is_flaky", is_flaky);
        if is_flaky && counters.ci_flake_retries_remaining > 0 {
            return draft
                .with(|p| p.counters.ci_flake_retries_remaining -= 1)
                .opening(Effect::RerunChecks {
                    commit: head.clone(),
                })
                .take(Event::CiFlakeRetry);
        }
        let draft = draft.with(|p| {
            p.facts.ci_failures = kept_failures(failures);
            p.facts.conflict_paths.clear();
        });
        if is_flaky && self.policy.ci_flake_hard_ceiling {
            return draft.take(Event::CiFlakeRetriesExhausted);
        }
        if counters.ci_red_rounds >= self.policy.ci_red_rounds {
            return draft
                .fact("ci_red_rounds", counters.ci_red_rounds)
                .take(Event::CiRedRepeated);
        }
        draft
            .with(|p| p.counters.ci_red_rounds += 1)
            .take(Event::CiRedFixable)
    }

    /// A look at the head found that it can't be merged into its base. Where that is known already, or
    /// the workflow rests or is over, it is no news.
    pub(super) fn conflict_found(self, paths: Vec<String>) -> Result<Outcome, Refusal> {
        let state = self.workflow.state();
        if state == State::ConflictResolving || !state.can_be_paused() {
            return Ok(Outcome::Unchanged);
        }
        self.conflict(paths)
    }

    /// The head can't be merged into its base.
    pub(super) fn conflict(self, mut paths: Vec<String>) -> Result<Outcome, Refusal> {
        paths.truncate(MAX_FACTS);
        self.underlying_draft()
            .because(format!("conflict in {}", paths.join(", ")))
            .fact("paths", paths.clone())
            .with(|p| p.facts.conflict_paths = paths)
            .take(Event::ConflictDetected)
    }

    /// The branch is at `head`, whoever moved it.
    pub(super) fn head_seen(self, head: CommitId) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        if progress.head.as_ref() == Some(&head) {
            return Ok(Outcome::Unchanged);
        }
        let moves = progress.counters.head_moves;
        let is_spent = moves >= self.policy.head_moves;
        let draft = self.head_move_draft(&head);
        match (progress.state, is_spent) {
            (State::AwaitingCi, _) => self.wait_restarted(head),
            (State::Reviewing, true) => draft
                .because(format!("the head moved {moves} times already"))
                .take(Event::HeadMovesExhausted),
            (State::Reviewing, false) => draft
                .with(|p| {
                    p.counters.head_moves += 1;
                    p.head = Some(head);
                })
                .take(Event::HeadMoved),
            (State::Merging, _) => {
                self.merge_blocked(format!("the head moved to {head}"), Some(head))
            }
            (
                State::Discovered
                | State::Analyzing
                | State::Implementing
                | State::ConflictResolving
                | State::Escalating,
                _,
            ) => Ok(draft.with(|p| p.head = Some(head)).note(Note::HeadRecorded)),
            // PAUSED compares on resume; the terminal ones are over.
            (
                State::Paused | State::Merged | State::CreatedPr | State::Abandoned | State::Stuck,
                _,
            ) => Ok(Outcome::Unchanged),
        }
    }

    /// The wait for checks begins anew with `head`. The first head that is seen is no move.
    fn wait_restarted(self, head: CommitId) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        let moves = progress.counters.head_moves;
        let is_move = progress.head.is_some();
        if is_move && moves >= self.policy.head_moves {
            return self
                .head_move_draft(&head)
                .because(format!("the head moved {moves} times already"))
                .take(Event::CiPollingExhausted);
        }
        let now = self.now;
        Ok(self
            .head_move_draft(&head)
            .with(|p| {
                if is_move {
                    p.counters.head_moves += 1;
                }
                p.head = Some(head);
                p.awaiting_ci_started_at = Some(now);
            })
            .note_restarting_checks(Note::CiWaitRestarted))
    }

    fn head_move_draft(self, head: &CommitId) -> Draft<'a> {
        let progress = self.workflow.progress();
        self.underlying_draft()
            .fact("head", head.as_str())
            .fact("was", progress.head.as_ref().map(CommitId::as_str))
            .fact("head_moves", progress.counters.head_moves)
    }

    /// The label gate.
    pub(super) fn label(self, label: LabelState) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        match (label, progress.pause) {
            (LabelState::Absent, None) if !progress.state.is_terminal() => {
                let pause = Pause {
                    was: progress.state,
                    by: PausedBy::Label,
                };
                let event = OutOfBand::OptInLabelRemoved;
                Ok(self.pausing(pause, event, Attempts::PendingCancelled))
            }
            (LabelState::Present, Some(pause)) if pause.by == PausedBy::Label => {
                Ok(self.resuming(pause, OutOfBand::OptInLabelRestored))
            }
            (LabelState::Absent | LabelState::Present, _) => Ok(Outcome::Unchanged),
        }
    }

    pub(super) fn pausing(self, pause: Pause, event: OutOfBand, attempts: Attempts) -> Outcome {
        self.draft()
            .fact("pre_pause_state", pause.was.as_str())
            .fact("cancels_running", attempts == Attempts::Cancelled)
            .with(|p| p.pause = Some(pause))
            .rest_or_resume(State::Paused, event, attempts)
    }

    /// Paused time counts towards no timer: the waits of the state begin anew.
    pub(super) fn resuming(self, pause: Pause, event: OutOfBand) -> Outcome {
        let now = self.now;
        self.draft()
            .with(|p| {
                p.pause = None;
                match pause.was {
                    State::AwaitingCi => p.awaiting_ci_started_at = Some(now),
                    State::Merging => p.merging_started_at = Some(now),
                    State::Discovered
                    | State::Analyzing
                    | State::Implementing
                    | State::ConflictResolving
                    | State::Escalating
                    | State::Reviewing
                    | State::Paused
                    | State::Merged
                    | State::CreatedPr
                    | State::Abandoned
                    | State::Stuck => {}
                }
            })
            .rest_or_resume(pause.was, event, Attempts::Kept)
    }

    /// Facts that end an item win over everything, a pause too. STUCK has one exit: it only keeps them.
    pub(super) fn upstream(self, fact: UpstreamFact) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        if progress.state == State::Stuck {
            let ended = match (fact, self.workflow.kind) {
                (UpstreamFact::Merged { .. }, Kind::PullRequest) => Upstream::Merged,
                (UpstreamFact::Merged { .. }, Kind::Issue) | (UpstreamFact::Closed, _) => {
                    Upstream::Closed
                }
            };
            // What is merged is closed as well, and stays merged.
            if progress.upstream == Some(Upstream::Merged)
                || progress.upstream.as_ref() == Some(&ended)
            {
                return Ok(Outcome::Unchanged);
            }
            return Ok(self
                .draft()
                .with(|p| p.upstream = Some(ended))
                .note(Note::UpstreamEnded));
        }
        if progress.state.is_terminal() {
            return Ok(Outcome::Unchanged);
        }
        match (fact, self.workflow.kind) {
            (UpstreamFact::Merged { commit }, Kind::PullRequest) => Ok(self
                .draft()
                .fact("merged_commit", commit.as_ref().map(CommitId::as_str))
                .with(|p| p.merged_commit = commit)
                .end_out_of_band(State::Merged, OutOfBand::UpstreamMerged)),
            (UpstreamFact::Merged { .. }, Kind::Issue) | (UpstreamFact::Closed, _) => self
                .draft()
                .with(|p| p.left_at = Some(self.now))
                .take(Event::UpstreamClosed),
        }
    }

    /// Noted once: from then on another workflow may follow.
    pub(super) fn item_left(self) -> Result<Outcome, Refusal> {
        let progress = self.workflow.progress();
        if !matches!(progress.state, State::Abandoned | State::CreatedPr) {
            return Err(Refusal::NotPossible {
                action: "noting that the item left",
                state: progress.state,
            });
        }
        if progress.left_at.is_some() {
            return Ok(Outcome::Unchanged);
        }
        Ok(self
            .draft()
            .with(|p| p.left_at = Some(self.now))
            .note(Note::ItemLeft))
    }
}

/// Whether an effect can be open in `state`.
const fn may_have_effect(state: State) -> bool {
    match state {
        State::Implementing | State::AwaitingCi | State::ConflictResolving | State::Merging => true,
        State::Discovered
        | State::Analyzing
        | State::Escalating
        | State::Reviewing
        | State::Paused
        | State::Merged
        | State::CreatedPr
        | State::Abandoned
        | State::Stuck => false,
    }
}
