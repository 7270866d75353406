//! A model server of the bench's own: what it streams carries the time when it was sent, or is much.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

/// Stamps in an answer, and how long it waits before each. Twenty-five tokens a second are what a usual model gives.
pub(crate) const TICKS: usize = 150;
const TICK: Duration = Duration::from_millis(40);

/// What a prompt says to be answered with [`FLOOD`] bytes instead of stamps.
pub(crate) const FLOOD_WORD: &str = "flood";
pub(crate) const FLOOD: usize = 4_000_000;
const FLOOD_CHUNK: usize = 4_000;

/// Digits of a stamp; a space follows.
const DIGITS: usize = 13;

/// The server's and the clients' clock.
fn micros() -> u64 {
    static BASE: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BASE.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// How long ago each stamp in a delta was sent, in milliseconds.
pub(crate) fn ages(text: &str) -> Vec<f64> {
    let now = micros();
    #[expect(clippy::cast_precision_loss, reason = "some seconds in microseconds")]
    text.split_whitespace()
        .filter(|word| word.len() == DIGITS)
        .filter_map(|word| word.parse::<u64>().ok())
        .map(|sent| now.saturating_sub(sent) as f64 / 1e3)
        .collect()
}

/// Serves until the bench ends.
pub(crate) struct StreamServer {
    pub(crate) base_url: String,
}

impl StreamServer {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("opening the bench's model server")?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that leaves in the middle is its own affair.
                std::thread::spawn(move || drop(answer(stream)));
            }
        });
        Ok(Self { base_url })
    }
}

fn answer(stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let flood = is_flood(&serde_json::from_slice(&body)?);

    let mut out = reader.into_inner();
    out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    if flood {
        let text = "words in a row, ".repeat(FLOOD_CHUNK / 16);
        for _ in 0..FLOOD / text.len() {
            chunk(&mut out, &json!({"content": text}), None)?;
        }
    } else {
        for _ in 0..TICKS {
            std::thread::sleep(TICK);
            chunk(&mut out, &json!({"content": format!("{:0DIGITS$} ", micros())}), None)?;
        }
    }
    chunk(&mut out, &json!({}), Some("stop"))?;
    out.write_all(b"data: [DONE]\n\n")?;
    Ok(())
}

fn chunk(out: &mut TcpStream, delta: &Value, finish: Option<&str>) -> std::io::Result<()> {
    let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    out.write_all(format!("data: {chunk}\n\n").as_bytes())
}

/// By the last message, which is the prompt.
fn is_flood(request: &Value) -> bool {
    let last = request["messages"].as_array().and_then(|messages| messages.last());
    last.is_some_and(|message| message["content"].to_string().contains(FLOOD_WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back() {
        let text = format!("{:0DIGITS$} and words {:0DIGITS$} ", micros(), micros());
        let ages = ages(&text);
        assert_eq!(ages.len(), 2);
        assert!(ages.iter().all(|age| (0.0..60_000.0).contains(age)));
    }

    #[test]
    fn a_prompt_says_what_is_streamed() {
        let request = |text: &str| json!({"messages": [{"role": "system", "content": "flood"}, {"role": "user", "content": text}]});
        assert!(is_flood(&request("a flood, please")));
        assert!(!is_flood(&request("ticks")));
    }
}
