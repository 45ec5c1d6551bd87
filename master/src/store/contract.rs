//! The contract suite: what each database must do, written once.
//!
//! A database brings a [`Database`], an empty store whose clock the test moves, and runs the list with
//! [`run_contract`]. Nothing here knows which one it is. Locks, migrations and damaged rows are each
//! database's own, and tested beside it.

pub(crate) mod attempts;
pub(crate) mod claims;
pub(crate) mod forge;
pub(crate) mod history;
pub(crate) mod holds;
pub(crate) mod leases;
pub(crate) mod races;
pub(crate) mod rows;
pub(crate) mod stats;
pub(crate) mod succession;
pub(crate) mod sweeps;
pub(crate) mod watching;
mod world;

pub(crate) use world::{Database, World, offer, progress};

/// Makes one test of each sentence of the contract. `$database` is a future of a [`Database`].
macro_rules! run_contract {
    ($database:expr) => {
        $crate::store::contract::run_contract! { @each $database;
            rows: a_repository_is_read_as_it_was_written,
            rows: repositories_are_listed_by_name_by_page,
            rows: a_repository_name_is_unique,
            rows: a_policy_is_replaced,
            rows: a_workflow_is_read_as_it_was_written,
            rows: a_moved_workflow_is_read_as_it_was_written,
            rows: an_update_of_an_old_version_loses_the_race,
            rows: state_since_moves_with_the_state_alone,
            rows: an_item_has_one_live_workflow,
            rows: live_workflows_are_counted_past_discovered,
            rows: workflows_are_filtered_and_paged,
            rows: the_newest_workflow_of_an_item_is_found,
            succession: a_predecessor_is_read_from_both_ends,
            succession: a_workflow_is_followed_once,
            succession: what_is_over_may_leave_until_it_was_seen_to,
            succession: an_issue_may_leave_once_its_pull_request_is_over,
            rows: a_poll_is_set_beside_the_version,
            rows: events_are_ordered_and_paged,
            rows: events_are_about_workflows_repositories_or_workers,
            rows: a_worker_is_put_and_replaced,
            rows: a_drain_outlives_registrations_and_a_declared_death_does_not,
            rows: workers_are_listed_by_page_with_their_leases,
            rows: an_effect_is_open_once_a_workflow,
            rows: an_effect_is_updated_while_it_is_open,
            attempts: an_attempt_is_read_as_it_was_written,
            attempts: a_subject_has_one_live_attempt,
            attempts: live_attempts_are_those_that_the_domain_calls_live,
            attempts: the_newest_attempts_come_oldest_first,
            attempts: an_old_fence_is_not_written,
            claims: higher_priority_goes_first,
            claims: the_repository_with_fewest_in_progress_goes_first,
            claims: a_batch_is_fair_inside_itself,
            claims: roles_share_one_order,
            claims: older_ones_go_first,
            claims: an_attempt_waits_for_its_not_before,
            claims: a_workflow_that_is_not_in_the_state_of_the_role_is_left,
            claims: a_workflow_without_a_head_is_left,
            claims: checks_run_while_ci_is_awaited,
            claims: checks_of_an_earlier_head_are_left,
            claims: a_kill_budget_takes_a_third_at_most,
            claims: tiers_and_roles_must_be_offered,
            claims: the_first_offer_that_fits_is_used,
            claims: a_repeated_request_answers_the_same_and_counts,
            claims: another_request_or_owner_gets_other_work,
            claims: fences_grow_and_never_restart,
            claims: a_lease_is_written_with_the_attempt,
            claims: those_that_do_not_fit_hold_up_nobody,
            claims: no_more_is_leased_than_nonces_are_given,
            claims: a_drained_or_dead_worker_gets_what_it_has_and_no_more,
            holds: a_hold_is_read_as_it_was_written,
            holds: a_held_account_is_leased_one_canary_once_its_time_has_passed,
            holds: other_accounts_and_checks_pass_a_hold_by,
            holds: a_profile_is_held_on_its_worker_alone,
            leases: beats_prolong_and_never_shorten,
            leases: a_beat_counts_from_its_age,
            leases: the_youngest_of_two_beats_counts,
            leases: beats_of_other_keys_and_owners_are_not_answered,
            leases: a_lease_is_stale_past_its_own_time_to_live_and_margin,
            leases: stale_leases_are_paged,
            leases: a_late_beat_saves_a_lease_from_the_reaper,
            leases: a_stale_lease_is_deleted_once,
            leases: a_lease_is_deleted_by_its_key_alone,
            leases: a_lease_is_marked_unconfirmed,
            leases: progress_is_kept_of_the_present_lease_alone,
            leases: sessions_and_leases_are_listed_by_worker,
            leases: heartbeats_and_held_leases_are_read_by_themselves,
            stats: figures_count_what_is_live,
            stats: live_workers_are_not_declared_dead_and_have_beaten_lately,
            sweeps: due_effects_leave_paused_workflows_out,
            sweeps: polls_of_ci_are_due_without_an_open_effect,
            sweeps: discovered_workflows_are_without_work,
            sweeps: a_state_with_a_role_needs_an_attempt_or_an_effect,
            sweeps: a_check_needs_a_conclusion_or_an_attempt,
            sweeps: each_check_of_the_repository_has_a_run_on_the_head,
            sweeps: without_checks_none_is_missing,
            sweeps: discovered_workflows_wait_for_room,
            sweeps: resting_workflows_need_no_work,
            sweeps: workflows_without_work_are_paged,
            sweeps: spent_attempts_are_told_by_policy,
            forge: an_item_is_read_as_it_was_written,
            forge: a_request_makes_one_item,
            forge: a_branch_has_one_open_pull_request,
            forge: items_are_numbered_a_repository,
            forge: open_items_with_a_label_are_paged,
            forge: items_are_filtered_and_paged,
            forge: comments_are_numbered_an_item_and_paged,
            forge: a_request_makes_one_comment,
            forge: the_newest_run_of_each_check_counts,
            watching: changes_come_in_the_order_of_their_writes,
            watching: pages_of_changes_miss_nothing_that_is_written_meanwhile,
            watching: what_does_not_fit_the_filter_moves_the_point_all_the_same,
            watching: a_point_that_was_never_given_begins_anew,
            watching: a_priority_moves_live_attempts_alone,
            watching: a_child_starts_with_its_parents_priority,
            watching: attempts_are_filtered_and_paged_newest_first,
            watching: a_page_of_attempts_looks_at_a_bounded_number,
            history: those_that_are_over_and_old_are_archivable,
            history: history_leaves_so_that_nothing_refers_to_what_is_gone,
            history: live_attempts_and_open_effects_do_not_leave,
            history: old_events_of_others_leave_alone,
            history: an_archived_workflow_says_so_and_is_a_change,
            races: a_dropped_transaction_leaves_nothing,
            races: reads_see_what_was_committed_alone,
            races: concurrent_writers_lose_no_update,
            races: concurrent_claims_lease_each_attempt_once,
            races: a_closed_store_is_unavailable,
        }
    };
    (@each $database:expr; $($module:ident: $name:ident,)+) => {$(
        #[tokio::test]
        async fn $name() {
            let world = $crate::store::contract::World::new($database.await);
            $crate::store::contract::$module::$name(&world).await;
        }
    )+};
}
pub(crate) use run_contract;
