//! What documents say about the state machine and the wire is what the code has. With
//! `POINTSMAN_WRITE_DOCUMENTS=1` the tests write it.

use std::{fmt::Write as _, fs, path::PathBuf};

use pointsman_master::domain::{
    policy::Policy,
    transitions::{Event, State, TABLE, Transition},
};
use pointsman_proto::FILE_DESCRIPTOR_SET;
use prost_types::{FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto};

/// Events that leave many states in the same way: listed, not drawn.
const EVERYWHERE: [Event; 4] = [
    Event::PickupExhausted,
    Event::BudgetExhausted,
    Event::UpstreamClosed,
    Event::OperatorUnstick,
];

/// Compares the part of a document between its marks with what it should be, or writes it.
fn keeps(document: &str, part: &str, wanted: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(document);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (
        format!("<!-- {part} -->\n"),
        format!("<!-- end of {part} -->\n"),
    );
    let start = text.find(&begin).expect("the part begins") + begin.len();
    let stop = text.find(&end).expect("the part ends");
    if text[start..stop] == *wanted {
        return;
    }
    let is_asked = std::env::vars().any(|(name, _)| name == "POINTSMAN_WRITE_DOCUMENTS");
    assert!(
        is_asked,
        "docs/{document} is not what the code has: POINTSMAN_WRITE_DOCUMENTS=1 scripts/test documents"
    );
    let text = format!("{}{wanted}{}", &text[..start], &text[stop..]);
    fs::write(path, text).unwrap();
}

#[test]
fn the_diagram_of_the_state_machine_is_the_table() {
    keeps("state-machine.md", "diagram", &diagram(TABLE));
    keeps("state-machine.md", "table", &table());
}

#[test]
fn a_diagram_without_a_row_is_another() {
    assert_ne!(diagram(&TABLE[1..]), diagram(TABLE));
}

fn diagram(table: &[Transition]) -> String {
    let mut text = "```mermaid\nstateDiagram-v2\n    [*] --> DISCOVERED\n".to_owned();
    let drawn = table.iter().filter(|row| !EVERYWHERE.contains(&row.event));
    for row in drawn {
        let bound = row
            .bound
            .map_or_else(String::new, |bound| format!(" ({bound})"));
        writeln!(
            text,
            "    {} --> {}: {}{bound}",
            row.from, row.to, row.event
        )
        .unwrap();
    }
    for state in State::ALL.iter().filter(|state| state.is_terminal()) {
        writeln!(text, "    {state} --> [*]").unwrap();
    }
    text.push_str("```\n");
    text
}

fn table() -> String {
    let policy = Policy::default();
    let mut text =
        "| from | event | to | only | bound | default |\n| --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for row in TABLE {
        let only = row.only.map_or_else(String::new, |kind| kind.to_string());
        let bound = row
            .bound
            .map_or_else(String::new, |bound| bound.to_string());
        let limit = row
            .bound
            .map_or_else(String::new, |bound| policy.limit(bound).to_string());
        writeln!(
            text,
            "| {} | `{}` | {} | {only} | {bound} | {limit} |",
            row.from, row.event, row.to
        )
        .unwrap();
    }
    text
}

#[test]
fn every_rpc_is_listed_with_what_it_says_of_itself() {
    keeps("protocol.md", "rpcs", &rpcs());
}

fn rpcs() -> String {
    let set: FileDescriptorSet = prost::Message::decode(FILE_DESCRIPTOR_SET).unwrap();
    let ours = set
        .file
        .iter()
        .filter(|file| file.package() == "pointsman.v1");
    let mut text = String::new();
    for file in ours {
        for (n, service) in file.service.iter().enumerate() {
            let name = service.name();
            write!(
                text,
                "\n### {name}\n\n| RPC | kind | |\n| --- | --- | --- |\n"
            )
            .unwrap();
            for (m, method) in service.method.iter().enumerate() {
                let path = [6, n, 2, m].map(|step| i32::try_from(step).unwrap());
                let says = comment(file, &path);
                assert!(!says.is_empty(), "{name}.{} has no comment", method.name());
                writeln!(text, "| {} | {} | {says} |", method.name(), kind(method)).unwrap();
            }
        }
    }
    text.push('\n');
    text
}

fn kind(method: &MethodDescriptorProto) -> &'static str {
    match (method.client_streaming(), method.server_streaming()) {
        (false, false) => "unary",
        (true, false) => "client stream",
        (false, true) => "server stream",
        (true, true) => "both stream",
    }
}

/// What the file says of the thing at a path of the descriptor, on one line.
fn comment(file: &FileDescriptorProto, path: &[i32]) -> String {
    let mut places = file.source_code_info.iter().flat_map(|info| &info.location);
    let place = places.find(|location| location.path == path);
    let text = place.map_or("", |location| location.leading_comments());
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}
