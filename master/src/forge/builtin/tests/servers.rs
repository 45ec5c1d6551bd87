//! Remotes behind http and ssh: the whole way over each, with the operator's settings of git.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{HEAD, World, base, merged, opened, world::BuiltinWorld};
use crate::{
    domain::policy::MergeMethod,
    forge::{Error, Forge, WantedMerge},
};

/// Serves a directory of repositories by git's own http-backend, to whoever has the password.
const SERVER: &str = r#"
import base64, http.server, os, subprocess, sys
WANTED = "Basic " + base64.b64encode(b"robot:open-sesame").decode()
class Handler(http.server.BaseHTTPRequestHandler):
    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != WANTED:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic realm=git")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        env = dict(PATH=os.environ["PATH"], GIT_PROJECT_ROOT=sys.argv[1], GIT_HTTP_EXPORT_ALL="1",
            GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*",
            PATH_INFO=path, QUERY_STRING=query, REQUEST_METHOD=self.command, REMOTE_USER="robot",
            CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
            GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        out = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = [value for name, value in lines if name == "Status"]
        self.send_response(int(status[0].split()[0]) if status else 200)
        for name, value in lines:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = serve
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;

/// Serves the directory that holds the remote; ends when it is dropped.
async fn serve(world: &BuiltinWorld) -> (Child, String) {
    let remote = world.remote.directory();
    let mut server = Command::new("python3")
        .args(["-c", SERVER])
        .arg(remote.parent().unwrap())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    said.read_line(&mut line).await.unwrap();
    let name = remote.file_name().unwrap().to_str().unwrap();
    (server, format!("http://127.0.0.1:{}/{name}", line.trim()))
}

fn with_password(password: &str) -> String {
    let helper = format!("!f() {{ echo username=robot; echo password={password}; }}; f");
    format!("[credential]\n\thelper = \"{helper}\"\n")
}

/// Opens and merges a pull request by each method: clone, fetch, push, and the atomic push with its proof.
async fn check_whole_way(world: &BuiltinWorld) {
    for method in MergeMethod::ALL {
        let wanted = WantedMerge {
            method: *method,
            ..opened(world).await
        };
        let commit = merged(world, &wanted).await;
        assert_eq!(base(world).await, commit, "{method}");
        let proof = super::proof(world, wanted.number);
        assert_eq!(world.reference(&proof).await, Some(commit), "{method}");
        world.put(HEAD, None).await;
    }
}

#[tokio::test]
async fn http_with_a_password_that_a_helper_knows() {
    let mut world = BuiltinWorld::new().await;
    let (_server, url) = serve(&world).await;
    world.reach(&url, &with_password("open-sesame")).await;
    check_whole_way(&world).await;
}

#[tokio::test]
async fn a_refusal_over_http_says_so_without_address_and_secret() {
    for settings in [with_password("sesame-shut"), String::new()] {
        let mut world = BuiltinWorld::new().await;
        let (_server, url) = serve(&world).await;
        world.reach(&url, &settings).await;
        let outcome = world.forge.branch(&world.repository, "main").await;
        let Err(error @ Error::Unavailable { .. }) = outcome else {
            panic!("{outcome:?}");
        };
        let text = error.to_string();
        let is_told =
            text.contains("Authentication failed") || text.contains("terminal prompts disabled");
        assert!(is_told, "{text}");
        for secret in ["127.0.0.1", "://", "sesame"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

/// A program in ssh's place: it gets the host and the command as ssh does, and runs the command here.
#[tokio::test]
async fn ssh_as_the_operator_names_it() {
    let mut world = BuiltinWorld::new().await;
    let path = world.remote.directory().display().to_string();
    let stand_in = world.remote.directory().join("../ssh");
    std::fs::write(
        &stand_in,
        "[ \"$1\" = git@host ] || exit 255\nexec sh -c \"$2\"\n",
    )
    .unwrap();
    let settings = format!(
        "[core]\n\tsshCommand = sh {}\n[ssh]\n\tvariant = simple\n",
        stand_in.display()
    );
    world.reach(&format!("git@host:{path}"), &settings).await;
    check_whole_way(&world).await;
    world
        .reach(&format!("git@elsewhere:{path}"), &settings)
        .await;
    let outcome = world.forge.branch(&world.repository, "main").await;
    assert!(
        matches!(outcome, Err(Error::Unavailable { .. })),
        "{outcome:?}"
    );
}
