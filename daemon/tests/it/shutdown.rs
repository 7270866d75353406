//! The real daemon going down while clients go on talking.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::served::{Client, Daemon, line, root};

/// A session that has left takes no messages any more. A call that came after it used to look for it for ever, and held
/// up a thread, then all of them, and the end of the daemon.
#[test]
fn calls_that_come_while_sessions_leave_do_not_hold_up_the_end() {
    let root = root();
    let mut daemon = Daemon::start(root.path());
    let project = tempfile::tempdir().unwrap();
    let new = json!({ "cwd": project.path(), "model": "demo/tour" });
    let made = Client::connect(&daemon.socket).call("session/new", &new).unwrap();
    let id = made["sessionId"].as_str().unwrap().to_owned();

    let callers: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = UnixStream::connect(&daemon.socket).unwrap();
            let call = line("session/get", &json!({ "sessionId": id }));
            std::thread::spawn(move || {
                let mut answers = BufReader::new(stream.try_clone().unwrap());
                let mut answer = String::new();
                // Until the daemon closes the connection.
                while stream.write_all(call.as_bytes()).is_ok()
                    && answers.read_line(&mut answer).is_ok_and(|n| n > 0)
                {
                    answer.clear();
                }
            })
        })
        .collect();
    daemon.terminate();
    assert!(daemon.ends(), "the daemon did not end");
    for caller in callers {
        caller.join().unwrap();
    }
}
