//! `pointsman item`, `items`, `close`, `reopen`, `comment` and `comments`: items of the built-in forge.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pointsman_proto::v1::{
    self, CloseItemRequest, CommentRequest, GetItemRequest, ListCommentsRequest, ListItemsRequest,
    ReopenItemRequest,
};
use serde::Serialize;

use crate::{
    args::Target,
    error::Error,
    item::text,
    output::{self, Format, Table},
    view::{Comment, Item, Workflow, cell, cell_instant},
};

/// Most items that the master gives at once.
const ITEM_PAGE: u32 = 200;
/// Most comments that the master gives at once.
const COMMENT_PAGE: u32 = 50;

/// Which item.
#[derive(Debug, Args)]
struct Named {
    /// The repository's name
    repository: String,
    /// The or pull request's number
    number: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    item: Named,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The repository's name
    repository: String,
    /// Only those
    #[arg(long, value_enum)]
    state: Option<ItemState>,
    /// Only those that carry it
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ItemState {
    Open,
    Closed,
}

#[derive(Debug, Args)]
pub(crate) struct Close {
    #[command(flatten)]
    item: Named,
    /// Why, for the history
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Reopen {
    #[command(flatten)]
    item: Named,
    /// Why, for the history
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Say {
    #[command(flatten)]
    item: Named,
    /// What to say
    #[arg(
        long,
        required_unless_present = "body_file",
        conflicts_with = "body_file"
    )]
    body: Option<String>,
    /// A file with what to say; `-` is standard input
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// Why, for the history
    #[arg(long, default_value = "said on the command line")]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct Comments {
    #[command(flatten)]
    item: Named,
}

#[derive(Debug, Serialize)]
struct Shown {
    item: Item,
    workflow: Option<Workflow>,
}

#[derive(Debug, Serialize)]
struct Changed {
    changed: bool,
    #[serde(flatten)]
    shown: Shown,
}

#[derive(Debug, Serialize)]
struct Listed {
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
struct Said {
    changed: bool,
    comment: Comment,
}

#[derive(Debug, Serialize)]
struct Told {
    comments: Vec<Comment>,
}

impl Show {
    /// Shows the item.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let request = GetItemRequest {
            repository: self.item.repository,
            number: self.item.number,
        };
        let mut client = target.connect().await?;
        let answer = client.repositories.get_item(request).await?.into_inner();
        let shown = Shown::new(answer.item, answer.workflow);
        match target.output {
            Format::Json => output::json(&shown),
            Format::Table => output::text(&shown.text()),
        }
    }
}

impl List {
    /// Lists items.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let state = match self.state {
            None => v1::ItemState::Unspecified,
            Some(ItemState::Open) => v1::ItemState::Open,
            Some(ItemState::Closed) => v1::ItemState::Closed,
        };
        let mut items: Vec<Item> = Vec::new();
        loop {
            let request = ListItemsRequest {
                repository: self.repository.clone(),
                state: state.into(),
                label: self.label.clone(),
                after_number: items.last().map_or(0, |item| item.number),
                page_size: ITEM_PAGE,
            };
            let page = client.repositories.list_items(request).await?.into_inner();
            let n = page.items.len();
            items.extend(page.items.into_iter().map(Item::from));
            if n < ITEM_PAGE as usize {
                break;
            }
        }
        match target.output {
            Format::Json => output::json(&Listed { items }),
            Format::Table => output::text(&item_table(&items).render()),
        }
    }
}

impl Close {
    /// Closes the item.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let request = CloseItemRequest {
            repository: self.item.repository,
            number: self.item.number,
            reason: self.reason,
        };
        let mut client = target.connect().await?;
        let answer = client.repositories.close_item(request).await?.into_inner();
        Changed::new(answer.changed, answer.item, answer.workflow).print(target.output)
    }
}

impl Reopen {
    /// Opens the item again.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let request = ReopenItemRequest {
            repository: self.item.repository,
            number: self.item.number,
            reason: self.reason,
        };
        let mut client = target.connect().await?;
        let answer = client.repositories.reopen_item(request).await?.into_inner();
        Changed::new(answer.changed, answer.item, answer.workflow).print(target.output)
    }
}

impl Say {
    /// Makes the comment.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let name = format!("{}#{}", self.item.repository, self.item.number);
        let request = CommentRequest {
            repository: self.item.repository,
            number: self.item.number,
            body: text(self.body, self.body_file.as_deref())?,
            request_id: String::new(),
            reason: self.reason,
        };
        let mut client = target.connect().await?;
        let answer = client.repositories.comment(request).await?.into_inner();
        let said = Said {
            changed: answer.changed,
            comment: answer.comment.unwrap_or_default().into(),
        };
        match target.output {
            Format::Json => output::json(&said),
            Format::Table => output::line(&format!("{name}: comment {}", said.comment.comment)),
        }
    }
}

impl Comments {
    /// Lists what was said.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let mut comments: Vec<Comment> = Vec::new();
        loop {
            let request = ListCommentsRequest {
                repository: self.item.repository.clone(),
                number: self.item.number,
                after_comment: comments.last().map_or(0, |comment| comment.comment),
                page_size: COMMENT_PAGE,
            };
            let page = client.repositories.list_comments(request).await?;
            let page = page.into_inner();
            let n = page.comments.len();
            comments.extend(page.comments.into_iter().map(Comment::from));
            if n < COMMENT_PAGE as usize {
                break;
            }
        }
        match target.output {
            Format::Json => output::json(&Told { comments }),
            Format::Table => output::text(&comment_table(&comments).render()),
        }
    }
}

impl Shown {
    fn new(item: Option<v1::Item>, workflow: Option<v1::Workflow>) -> Self {
        Self {
            item: item.unwrap_or_default().into(),
            workflow: workflow.map(Workflow::from),
        }
    }

    fn workflow_state(&self) -> String {
        let state = self.workflow.as_ref().map(|w| cell(w.state.as_ref()));
        state.unwrap_or_else(|| "no workflow".to_owned())
    }

    fn text(&self) -> String {
        let item = &self.item;
        let lines = [
            ("item", format!("{}#{}", item.repository, item.number)),
            ("kind", cell(item.kind.as_ref())),
            ("title", item.title.clone()),
            ("state", item.state().to_owned()),
            ("labels", item.labels.join(", ")),
            ("head", cell(item.head_ref.as_ref())),
            ("base", item.base_ref.clone()),
            ("merged as", cell(item.merged_commit.as_ref())),
            ("workflow", self.workflow_state()),
        ];
        let lines = lines.map(|(name, value)| {
            let line = format!("{name:<10} {}", output::printable(&value));
            format!("{}\n", line.trim_end())
        });
        let body = item.body.as_deref().unwrap_or_default();
        let body: Vec<String> = body.lines().map(output::printable).collect();
        format!("{}\n{}\n", lines.concat(), body.join("\n"))
    }
}

impl Changed {
    fn new(changed: bool, item: Option<v1::Item>, workflow: Option<v1::Workflow>) -> Self {
        Self {
            changed,
            shown: Shown::new(item, workflow),
        }
    }

    fn print(&self, format: Format) -> Result<(), Error> {
        match format {
            Format::Json => output::json(self),
            Format::Table => output::line(&self.sentence()),
        }
    }

    fn sentence(&self) -> String {
        let item = &self.shown.item;
        let before = if self.changed { "now" } else { "unchanged" };
        format!(
            "{}#{} {before}: {}; {}",
            item.repository,
            item.number,
            item.state(),
            self.shown.workflow_state()
        )
    }
}

fn item_table(items: &[Item]) -> Table {
    let mut table = Table::new(["NUMBER", "KIND", "STATE", "LABELS", "TITLE"]);
    for item in items {
        table.row([
            item.number.to_string(),
            cell(item.kind.as_ref()),
            item.state().to_owned(),
            item.labels.join(", "),
            item.title.clone(),
        ]);
    }
    table
}

fn comment_table(comments: &[Comment]) -> Table {
    let mut table = Table::new(["COMMENT", "AT", "AUTHOR", "TEXT"]);
    for comment in comments {
        table.row([
            comment.comment.to_string(),
            cell_instant(comment.created_at.as_deref()),
            comment.author.clone(),
            comment.body.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(open: bool, merged_commit: &str) -> Shown {
        let item = v1::Item {
            repository: "demo".to_owned(),
            number: 3,
            title: "A title".to_owned(),
            body: "one\ntwo \u{1b}[2J".to_owned(),
            open,
            merged_commit: merged_commit.to_owned(),
            ..v1::Item::default()
        };
        Shown::new(Some(item), None)
    }

    #[test]
    fn a_change_says_what_the_item_is_now() {
        let check = |changed, shown, expected: &str| {
            assert_eq!(Changed { changed, shown }.sentence(), expected);
        };
        check(true, shown(false, ""), "demo#3 now: closed; no workflow");
        check(
            false,
            shown(false, "abc"),
            "demo#3 unchanged: merged; no workflow",
        );
    }

    #[test]
    fn an_item_is_shown_with_its_text_and_steers_no_terminal() {
        let text = shown(true, "").text();
        assert!(text.contains("state      open\n"), "{text}");
        assert!(text.contains("\none\ntwo "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
