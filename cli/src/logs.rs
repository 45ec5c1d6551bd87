//! `pointsman logs`: what harnesses print.
//!
//! Of a workflow the newest attempt that was leased and has a log; with `-f` then the next ones, until the
//! workflow is over. What is printed is the harness's, so that it goes to a pipe as it is, and to a terminal
//! without anything that could steer it.

use std::{borrow::Cow, time::Duration};

use clap::Args;
use pointsman_proto::v1::{
    Attempt, GetWorkflowRequest, GetWorkflowResponse, TailLogRequest,
    tail_log_request::From,
    tail_log_response::{End, Part},
    workflow_service_client::WorkflowServiceClient,
};
use serde::Serialize;
use tokio::time::sleep;
use tonic::{Code, Status, transport::Channel};

use crate::{
    args::Target,
    client::Patience,
    error::Error,
    name,
    output::{self, Format},
    view::Workflow,
    watch::is_over,
    workflow::resolve,
};

/// Between two looks for what comes next.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The workflow's id, or REPOSITORY#NUMBER: its newest attempt that has a log. Or an attempt's id
    #[arg(
        required_unless_present = "attempt",
        conflicts_with = "attempt",
        value_name = "WORKFLOW|ATTEMPT"
    )]
    target: Option<String>,
    /// Go on as it grows; of a workflow with the next attempts too, until it is over
    #[arg(short, long)]
    follow: bool,
    /// Only the last bytes, and what follows them
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
    /// One attempt, by its id
    #[arg(long, value_name = "ID")]
    attempt: Option<String>,
    /// One lease of the attempt, by its fence; the newest that has a log by default
    #[arg(
        long,
        value_name = "N",
        requires = "attempt",
        conflicts_with = "target",
        default_value_t = 0,
        hide_default_value = true
    )]
    fence: u64,
}

/// One log, and where to begin.
struct Wanted {
    attempt: String,
    /// 0: the newest lease that has a log.
    fence: u64,
    tail: Option<u64>,
}

impl Logs {
    /// Prints one log, or one after the other.
    pub(crate) async fn run(self, target: &Target) -> Result<(), Error> {
        let mut client = target.connect().await?;
        let mut reader = Reader {
            workflows: client.workflows.clone(),
            printer: Printer::new(target.output),
            follows: self.follow,
            patience: Patience::default(),
        };
        let wanted = |attempt| Wanted {
            attempt,
            fence: self.fence,
            tail: self.tail,
        };
        if let Some(attempt) = self.attempt {
            return reader.print(&wanted(attempt)).await.map(drop);
        }
        let typed = self.target.unwrap_or_default();
        let id = resolve(&mut client, &typed).await?;
        match reader.workflow(id.clone()).await {
            Ok(_) if self.follow => reader.follow(id, self.tail).await,
            Ok(workflow) => reader.newest(&workflow, &typed, self.tail).await,
            // An id may be an attempt's.
            Err(Error::Status(status)) if status.code() == Code::NotFound => {
                reader.print(&wanted(id)).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

struct Reader {
    workflows: WorkflowServiceClient<Channel>,
    printer: Printer,
    follows: bool,
    patience: Patience,
}

impl Reader {
    async fn workflow(&mut self, workflow_id: String) -> Result<GetWorkflowResponse, Error> {
        let request = GetWorkflowRequest { workflow_id };
        Ok(self.workflows.get_workflow(request).await?.into_inner())
    }

    /// The newest log of a workflow.
    async fn newest(
        &mut self,
        workflow: &GetWorkflowResponse,
        typed: &str,
        tail: Option<u64>,
    ) -> Result<(), Error> {
        for attempt in workflow.attempts.iter().rev().filter(|a| a.lock_fence > 0) {
            output::note(&title(attempt));
            let wanted = Wanted {
                attempt: attempt.id.clone(),
                fence: 0,
                tail,
            };
            match self.print(&wanted).await {
                Err(error) if is_missing(&error) => output::note("it has no log"),
                printed => return printed.map(drop),
            }
        }
        Err(Error::NotFound(format!(
            "no attempt of {typed} has a log; `pointsman workflow {typed}` lists its attempts"
        )))
    }

    /// The newest log of a workflow, then each that comes, until the workflow is over.
    async fn follow(&mut self, id: String, mut tail: Option<u64>) -> Result<(), Error> {
        let mut last: Option<(String, u64)> = None;
        loop {
            let answer = match self.workflow(id.clone()).await {
                Err(Error::Status(status)) => {
                    self.patience.wait_after(*status).await?;
                    continue;
                }
                answer => answer?,
            };
            self.patience.succeeded();
            let Some(attempt) = next(&answer.attempts, last.as_ref()) else {
                if answer
                    .workflow
                    .is_none_or(|wire| is_over(&Workflow::from(wire)))
                {
                    return Ok(());
                }
                sleep(LOOK_INTERVAL).await;
                continue;
            };
            let (id, fence) = (attempt.id.clone(), attempt.lock_fence);
            output::note(&format!("{}, lease {fence}", title(attempt)));
            let wanted = Wanted {
                attempt: id.clone(),
                fence,
                tail: tail.take(),
            };
            match self.print(&wanted).await {
                Err(error) if is_missing(&error) => output::note("it has no log"),
                printed => printed?,
            }
            last = Some((id, fence));
        }
    }

    /// Prints one log to its end. A master that goes away meanwhile is waited for, where the log is
    /// followed.
    async fn print(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let mut request = TailLogRequest {
            attempt_id: wanted.attempt.clone(),
            lock_fence: wanted.fence,
            from: wanted.tail.map(From::LastBytes),
            follow: self.follows,
        };
        loop {
            match self.read(&mut request).await {
                Err(Error::Status(status)) if self.follows => {
                    self.patience.wait_after(*status).await?;
                }
                ended => return ended,
            }
        }
    }

    /// Reads until the end. Afterwards `request` asks for what has not been read.
    async fn read(&mut self, request: &mut TailLogRequest) -> Result<(), Error> {
        let mut parts = self.workflows.tail_log(request.clone()).await?.into_inner();
        while let Some(message) = parts.message().await? {
            self.patience.succeeded();
            match message.part {
                Some(Part::Start(start)) => {
                    request.lock_fence = start.lock_fence;
                    self.printer.start(start.attempt_id, start.lock_fence);
                }
                Some(Part::Chunk(chunk)) => {
                    let next = chunk.offset + chunk.data.len() as u64;
                    self.printer.chunk(chunk.offset, &chunk.data)?;
                    request.from = Some(From::Offset(next));
                }
                Some(Part::End(end)) => return self.printer.end(end, self.follows),
                None => {}
            }
        }
        // A stream that ends without its last message was cut off.
        Err(Status::unavailable("the log broke off").into())
    }
}

/// Which attempt's newest lease comes after what was printed last: a later lease of the same attempt, or
/// the next attempt that was leased; the newest one where nothing was printed yet.
fn next<'a>(attempts: &'a [Attempt], last: Option<&(String, u64)>) -> Option<&'a Attempt> {
    let mut leased = attempts.iter().filter(|attempt| attempt.lock_fence > 0);
    let Some((id, fence)) = last else {
        return leased.next_back();
    };
    // Ids grow with time.
    leased.find(|attempt| attempt.id > *id || (attempt.id == *id && attempt.lock_fence > *fence))
}

/// Whose log follows, which may be empty.
fn title(attempt: &Attempt) -> String {
    let role = name::role(attempt.role).unwrap_or_default();
    format!("attempt {} ({role})", attempt.id)
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Status(status) if status.code() == Code::NotFound)
}

/// Prints parts for whoever looks.
struct Printer {
    format: Format,
    is_terminal: bool,
    log: (String, u64),
    text: Decoder,
    /// Of the first byte that `text` has not given out yet.
    offset: u64,
}

#[derive(Serialize)]
struct ChunkLine<'a> {
    attempt_id: &'a str,
    lock_fence: u64,
    /// Of the first byte of `text` in the log.
    offset: u64,
    text: &'a str,
}

#[derive(Serialize)]
struct EndLine<'a> {
    attempt_id: &'a str,
    lock_fence: u64,
    end: EndShown,
}

#[derive(Serialize)]
struct EndShown {
    offset: u64,
    is_complete: bool,
    is_cut: bool,
    total_bytes: Option<u64>,
}

impl Printer {
    fn new(format: Format) -> Self {
        Self {
            format,
            is_terminal: output::is_terminal(),
            log: Default::default(),
            text: Decoder::default(),
            offset: 0,
        }
    }

    fn start(&mut self, attempt: String, fence: u64) {
        let log = (attempt, fence);
        if self.log != log {
            self.log = log;
            self.text = Decoder::default();
        }
    }

    fn chunk(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        match self.format {
            Format::Table if !self.is_terminal => output::bytes(data),
            Format::Table => output::text(&harmless(&self.text.decode(data))),
            Format::Json => {
                let from = offset - self.text.rest.len() as u64;
                let text = self.text.decode(data);
                self.offset = offset + data.len() as u64 - self.text.rest.len() as u64;
                self.json(from, &text)
            }
        }
    }

    fn json(&self, offset: u64, text: &str) -> Result<(), Error> {
        if text.is_empty() {
            return Ok(());
        }
        output::json_line(&ChunkLine {
            attempt_id: &self.log.0,
            lock_fence: self.log.1,
            offset,
            text,
        })
    }

    fn end(&mut self, end: End, is_followed: bool) -> Result<(), Error> {
        let rest = self.text.finish();
        match self.format {
            Format::Table => {
                output::text(&rest)?;
                if is_followed && !end.is_complete {
                    output::note("the lease ended without a last word: the log may lack its end");
                }
                Ok(())
            }
            Format::Json => {
                self.json(self.offset, &rest)?;
                output::json_line(&EndLine {
                    attempt_id: &self.log.0,
                    lock_fence: self.log.1,
                    end: EndShown {
                        offset: end.offset,
                        is_complete: end.is_complete,
                        is_cut: end.is_cut,
                        total_bytes: (end.total_bytes > 0).then_some(end.total_bytes),
                    },
                })
            }
        }
    }
}

/// Bytes to text, where a chunk may end within a character.
#[derive(Debug, Default)]
struct Decoder {
    /// The start of a character.
    rest: Vec<u8>,
}

impl Decoder {
    fn decode(&mut self, data: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend_from_slice(data);
        let whole = bytes.len() - unfinished(&bytes);
        self.rest = bytes.split_off(whole);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// How many bytes at the end may be the start of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    let could_go_on = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
    if could_go_on { invalid.len() } else { 0 }
}

/// Without what could steer a terminal: control characters, line ends and tabs apart, become spaces.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(is_harmful) {
        let clean = |c| if is_harmful(c) { ' ' } else { c };
        Cow::Owned(text.chars().map(clean).collect())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(leases: &[(&str, u64)]) -> Vec<Attempt> {
        let attempt = |(id, fence): &(&str, u64)| Attempt {
            id: (*id).to_owned(),
            lock_fence: *fence,
            ..Attempt::default()
        };
        leases.iter().map(attempt).collect()
    }

    #[test]
    fn what_comes_next_is_a_later_lease_or_a_later_attempt() {
        let check =
            |leases: &[(&str, u64)], last: Option<(&str, u64)>, expected: Option<(&str, u64)>| {
                let attempts = attempts(leases);
                let last = last.map(|(id, fence)| (id.to_owned(), fence));
                let found = next(&attempts, last.as_ref()).map(|a| (a.id.as_str(), a.lock_fence));
                assert_eq!(found, expected, "{leases:?} after {last:?}");
            };
        check(&[], None, None);
        check(&[("a", 0)], None, None);
        check(&[("a", 1), ("b", 2), ("c", 0)], None, Some(("b", 2)));
        check(&[("a", 1)], Some(("a", 1)), None);
        check(&[("a", 2)], Some(("a", 1)), Some(("a", 2)));
        check(&[("a", 1), ("b", 0)], Some(("a", 1)), None);
        check(
            &[("a", 1), ("b", 1), ("c", 1)],
            Some(("a", 1)),
            Some(("b", 1)),
        );
    }

    #[test]
    fn a_terminal_is_not_steered_and_keeps_its_lines() {
        assert_eq!(harmless("a\tb\nü"), "a\tb\nü");
        assert_eq!(harmless("\u{1b}[31mred\r\u{9b}2J\u{7f}"), " [31mred  2J ");
    }

    #[test]
    fn characters_that_chunks_cut_are_put_together() {
        let text = "aü€😀z".as_bytes();
        for cut in 0..text.len() {
            let mut decoder = Decoder::default();
            let mut all = decoder.decode(&text[..cut]);
            assert!(!all.contains('\u{fffd}'), "{cut}: {all}");
            all += &decoder.decode(&text[cut..]);
            all += &decoder.finish();
            assert_eq!(all, "aü€😀z", "{cut}");
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(b"\xff\xfea\xe2"), "\u{fffd}\u{fffd}a");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }
}
