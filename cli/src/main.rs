//! The binary `pointsman`. Everything is in the library, so that tests can be the same program.

fn main() -> std::process::ExitCode {
    pointsman_cli::main()
}
