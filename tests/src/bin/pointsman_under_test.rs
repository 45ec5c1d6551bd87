//! `pointsman`, built with the tests, so that it is never older than what is tested.

fn main() -> std::process::ExitCode {
    pointsman_cli::main()
}
