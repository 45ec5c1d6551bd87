//! RepositoryService: convert, one call, convert.

use pointsman_proto::v1::{
    self, AddRepositoryRequest, AddRepositoryResponse, CloseItemRequest, CloseItemResponse,
    CommentRequest, CommentResponse, GetItemRequest, GetItemResponse, ItemState,
    ListCommentsRequest, ListCommentsResponse, ListItemsRequest, ListItemsResponse,
    ListRepositoriesRequest, ListRepositoriesResponse, ReopenItemRequest, ReopenItemResponse,
    SetLabelRequest, SetLabelResponse, SubmitIssueRequest, SubmitIssueResponse,
    UpdatePolicyRequest, UpdatePolicyResponse, repository_service_server::RepositoryService,
};
use tonic::{Request, Response, Status};

use super::{
    OPERATOR,
    convert::{comment, domain_policy, item, policy_fields, repository, workflow},
    fields::{
        DEFAULT_PAGE, FieldError, MAX_CHECKS, MAX_COMMENT_PAGE, MAX_ITEM_PAGE, MAX_LABEL, MAX_LINE,
        MAX_PAGE, MAX_REASON, MAX_TEXT, MAX_TITLE, branch, check_name, git_url, line, list,
        optional, optional_id, page_size, repository_name, required,
    },
    status::status,
};
use crate::{
    domain::{ci::CheckDefinition, decision::LabelState},
    service::{Change, ItemView, NewComment, NewIssue, NewRepository, Service},
    store::model::ItemFilter,
};

/// The base branch of a repository that names none.
const DEFAULT_BASE: &str = "main";
/// The check that `ci_command` stands for.
const DEFAULT_CHECK: &str = "ci";
/// The opt-in label of a repository that names none.
const DEFAULT_LABEL: &str = "agent";

/// Serves operators' calls about repositories and items.
pub(super) struct RepositoryApi {
    pub(super) service: Service,
}

fn or_default<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

/// The checks of a new repository; `ci_command` is the first.
fn checks(request: &AddRepositoryRequest) -> Result<Vec<CheckDefinition>, FieldError> {
    let mut checks: Vec<CheckDefinition> = Vec::new();
    let ci_command = optional("ci_command", &request.ci_command, MAX_LINE)?;
    if !ci_command.trim().is_empty() {
        checks.push(CheckDefinition {
            name: DEFAULT_CHECK.to_owned(),
            command: ci_command.to_owned(),
        });
    }
    for wire in list("checks", &request.checks, MAX_CHECKS)? {
        let check = CheckDefinition {
            name: check_name("checks.name", &wire.name)?.to_owned(),
            command: required("checks.command", &wire.command, MAX_LINE)?.to_owned(),
        };
        if checks.iter().any(|other| other.name == check.name) {
            let reason = format!("there are two checks {}; each needs its own", check.name);
            return Err(FieldError::new("checks.name", reason));
        }
        checks.push(check);
    }
    list("checks", &checks, MAX_CHECKS)?;
    Ok(checks)
}

#[tonic::async_trait]
impl RepositoryService for RepositoryApi {
    async fn add_repository(
        &self,
        request: Request<AddRepositoryRequest>,
    ) -> Result<Response<AddRepositoryResponse>, Status> {
        let request = request.into_inner();
        let reason = optional("reason", &request.reason, MAX_REASON)?.to_owned();
        let checks = checks(&request)?;
        let new = NewRepository {
            name: repository_name("name", &request.name)?.to_owned(),
            git_url: git_url("git_url", &request.git_url)?.to_owned(),
            base_ref: branch("base_ref", or_default(&request.base_ref, DEFAULT_BASE))?.to_owned(),
            label: line(
                "label",
                or_default(&request.label, DEFAULT_LABEL),
                MAX_LABEL,
            )?
            .to_owned(),
            checks,
            policy: domain_policy(request.policy.unwrap_or_default())?,
        };
        let change = self
            .service
            .add_repository(new, &reason, OPERATOR)
            .await
            .map_err(|error| status(&error))?;
        let changed = change.is_changed();
        let added = change.into_inner();
        let policy = self.service.policy(&added);
        Ok(Response::new(AddRepositoryResponse {
            repository: Some(repository(&added, &policy)),
            changed,
        }))
    }

    async fn list_repositories(
        &self,
        request: Request<ListRepositoriesRequest>,
    ) -> Result<Response<ListRepositoriesResponse>, Status> {
        let request = request.into_inner();
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        // The token is the last name of the page before.
        let after = match request.page_token.as_str() {
            "" => "",
            token => repository_name("page_token", token)?,
        };
        let rows = self
            .service
            .repositories(after, limit)
            .await
            .map_err(|error| status(&error))?;
        let is_full = rows.len() == limit as usize;
        let next_page_token = rows
            .last()
            .filter(|_| is_full)
            .map(|row| row.name.clone())
            .unwrap_or_default();
        let repositories = rows
            .iter()
            .map(|row| repository(row, &self.service.policy(row)))
            .collect();
        Ok(Response::new(ListRepositoriesResponse {
            repositories,
            next_page_token,
        }))
    }

    async fn submit_issue(
        &self,
        request: Request<SubmitIssueRequest>,
    ) -> Result<Response<SubmitIssueResponse>, Status> {
        let request = request.into_inner();
        let reason = optional("reason", &request.reason, MAX_REASON)?;
        let new = NewIssue {
            repository: repository_name("repository", &request.repository)?,
            title: line("title", &request.title, MAX_TITLE)?,
            body: optional("body", &request.body, MAX_TEXT)?,
            is_labelled: !request.unlabelled,
            request: optional_id("request_id", &request.request_id)?,
        };
        let change = self
            .service
            .submit_issue(new, reason, OPERATOR)
            .await
            .map_err(|error| status(&error))?;
        let changed = change.is_changed();
        let submitted = change.into_inner();
        Ok(Response::new(SubmitIssueResponse {
            number: submitted.number,
            workflow: submitted.workflow.as_ref().map(workflow),
            changed,
        }))
    }

    async fn set_label(
        &self,
        request: Request<SetLabelRequest>,
    ) -> Result<Response<SetLabelResponse>, Status> {
        let request = request.into_inner();
        let state = if request.present {
            LabelState::Present
        } else {
            LabelState::Absent
        };
        let change = self
            .service
            .set_label(
                repository_name("repository", &request.repository)?,
                request.number,
                line("label", &request.label, MAX_LABEL)?,
                state,
                optional("reason", &request.reason, MAX_REASON)?,
                OPERATOR,
            )
            .await
            .map_err(|error| status(&error))?;
        let changed = change.is_changed();
        let set = change.into_inner();
        Ok(Response::new(SetLabelResponse {
            labels: set.labels,
            workflow: set.workflow.as_ref().map(workflow),
            changed,
        }))
    }

    async fn update_policy(
        &self,
        request: Request<UpdatePolicyRequest>,
    ) -> Result<Response<UpdatePolicyResponse>, Status> {
        let request = request.into_inner();
        let name = repository_name("repository", &request.repository)?;
        let wire = request.policy.unwrap_or_default();
        let fields = policy_fields(&wire, request.update_mask.as_ref())?;
        let reason = required("reason", &request.reason, MAX_REASON)?;
        let new = domain_policy(wire)?;
        let change = self
            .service
            .update_policy(name, &new, &fields, reason, OPERATOR)
            .await
            .map_err(|error| status(&error))?;
        let changed = change.is_changed();
        let updated = change.into_inner();
        let policy = self.service.policy(&updated);
        Ok(Response::new(UpdatePolicyResponse {
            repository: Some(repository(&updated, &policy)),
            changed,
        }))
    }

    async fn close_item(
        &self,
        request: Request<CloseItemRequest>,
    ) -> Result<Response<CloseItemResponse>, Status> {
        let request = request.into_inner();
        let name = repository_name("repository", &request.repository)?;
        let reason = required("reason", &request.reason, MAX_REASON)?;
        let change = self
            .service
            .close_item(name, request.number, reason, OPERATOR)
            .await
            .map_err(|error| status(&error))?;
        let (item, workflow, changed) = shown(change);
        Ok(Response::new(CloseItemResponse {
            item,
            workflow,
            changed,
        }))
    }

    async fn reopen_item(
        &self,
        request: Request<ReopenItemRequest>,
    ) -> Result<Response<ReopenItemResponse>, Status> {
        let request = request.into_inner();
        let name = repository_name("repository", &request.repository)?;
        let reason = required("reason", &request.reason, MAX_REASON)?;
        let change = self
            .service
            .reopen_item(name, request.number, reason, OPERATOR)
            .await
            .map_err(|error| status(&error))?;
        let (item, workflow, changed) = shown(change);
        Ok(Response::new(ReopenItemResponse {
            item,
            workflow,
            changed,
        }))
    }

    async fn comment(
        &self,
        request: Request<CommentRequest>,
    ) -> Result<Response<CommentResponse>, Status> {
        let request = request.into_inner();
        let new = NewComment {
            repository: repository_name("repository", &request.repository)?,
            number: request.number,
            body: required("body", &request.body, MAX_TEXT)?,
            request: optional_id("request_id", &request.request_id)?,
        };
        let reason = required("reason", &request.reason, MAX_REASON)?;
        let change = self
            .service
            .comment(new, reason, OPERATOR)
            .await
            .map_err(|error| status(&error))?;
        let changed = change.is_changed();
        Ok(Response::new(CommentResponse {
            comment: Some(comment(&change.into_inner())),
            changed,
        }))
    }

    async fn list_comments(
        &self,
        request: Request<ListCommentsRequest>,
    ) -> Result<Response<ListCommentsResponse>, Status> {
        let request = request.into_inner();
        let name = repository_name("repository", &request.repository)?;
        let limit = page_size(request.page_size, MAX_COMMENT_PAGE, MAX_COMMENT_PAGE)?;
        let comments = self
            .service
            .comments(name, request.number, request.after_comment, limit)
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(ListCommentsResponse {
            comments: comments.iter().map(comment).collect(),
        }))
    }

    async fn get_item(
        &self,
        request: Request<GetItemRequest>,
    ) -> Result<Response<GetItemResponse>, Status> {
        let request = request.into_inner();
        let name = repository_name("repository", &request.repository)?;
        let view = self.service.item(name, request.number).await;
        let view = view.map_err(|error| status(&error))?;
        let (item, workflow, _) = shown(Change::Unchanged(view));
        Ok(Response::new(GetItemResponse { item, workflow }))
    }

    async fn list_items(
        &self,
        request: Request<ListItemsRequest>,
    ) -> Result<Response<ListItemsResponse>, Status> {
        let request = request.into_inner();
        let name = repository_name("repository", &request.repository)?;
        let label = optional("label", &request.label, MAX_LABEL)?;
        let filter = ItemFilter {
            is_open: item_state(request.state)?,
            label: (!label.is_empty()).then(|| label.to_owned()),
        };
        let limit = page_size(request.page_size, DEFAULT_PAGE, MAX_ITEM_PAGE)?;
        let items = self
            .service
            .items(name, &filter, request.after_number, limit)
            .await
            .map_err(|error| status(&error))?;
        let items = items.iter().map(|row| v1::Item {
            body: String::new(),
            ..item(name, row)
        });
        Ok(Response::new(ListItemsResponse {
            items: items.collect(),
        }))
    }
}

/// An item with its workflow, and whether it was changed.
fn shown(change: Change<ItemView>) -> (Option<v1::Item>, Option<v1::Workflow>, bool) {
    let changed = change.is_changed();
    let view = change.into_inner();
    let item = item(&view.repository.name, &view.item);
    (Some(item), view.workflow.as_ref().map(workflow), changed)
}

/// Whether open or closed items are meant; `None`: both.
fn item_state(wire: i32) -> Result<Option<bool>, FieldError> {
    match ItemState::try_from(wire) {
        Ok(ItemState::Unspecified) => Ok(None),
        Ok(ItemState::Open) => Ok(Some(true)),
        Ok(ItemState::Closed) => Ok(Some(false)),
        Err(_) => Err(FieldError::new(
            "state",
            format!("is {wire}; OPEN or CLOSED is expected"),
        )),
    }
}
