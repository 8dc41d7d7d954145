//! A strict Harmony parser in Rust that reads text, and its adapter:
//!
//!     cargo build --release --manifest-path examples/adapters/rust/Cargo.toml
//!     harmony-conformance golden run --command examples/adapters/rust/target/release/adapter
//!
//! It needs no tokenizer: the text of a request is equivalent to its tokens, or null.

use serde_json::{json, Map, Value};
use std::io::{self, BufRead, Write};

type Message = Map<String, Value>;

const ROLES: [&str; 5] = ["user", "assistant", "system", "developer", "tool"];
const STOPS: [&str; 3] = ["<|end|>", "<|call|>", "<|return|>"];

/// Cut off the first special token, or the text before it.
fn first_piece(text: &str) -> (&str, &str) {
    let begins = text.match_indices("<|").map(|(at, _)| at);
    for at in begins {
        let name = &text[at + 2..];
        let end = name.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')).unwrap_or(name.len());
        if end > 0 && name[end..].starts_with("|>") {
            return text.split_at(if at == 0 { end + 4 } else { at });
        }
    }
    (text, "")
}

/// Read a completion. The role is that of the header before it.
fn parse(mut text: &str, mut role: Option<&str>) -> (Vec<Message>, Option<String>) {
    let (mut messages, mut header) = (vec![], role.is_some());
    let mut open: Option<Message> = None;
    let mut held = String::new();
    while !text.is_empty() {
        let (piece, rest) = first_piece(text);
        text = rest;
        if open.is_some() && STOPS.contains(&piece) {
            messages.extend(open.take().map(|message| closed(message, &mut held)));
        } else if open.is_none() && !header {
            if piece != "<|start|>" {
                return (messages, Some(format!("expected <|start|>, got {piece}")));
            }
            header = true;
        } else if header && piece == "<|message|>" {
            match parse_header(&std::mem::take(&mut held), role) {
                Ok(message) => open = Some(message),
                Err(error) => return (messages, Some(error)),
            }
            (role, header) = (None, false);
        } else {
            held.push_str(piece);
        }
    }
    if header {
        return (messages, Some("the input ends in a header".into()));
    }
    messages.extend(open.map(|message| closed(message, &mut held)));
    (messages, None)
}

fn closed(mut message: Message, held: &mut String) -> Message {
    message.insert("content".into(), json!(std::mem::take(held)));
    message
}

fn parse_header(text: &str, role: Option<&str>) -> Result<Message, String> {
    let mut read = Message::new();
    let mut text = text.to_string();
    if let Some((before, after)) = text.split_once("<|channel|>") {
        let length = after.find(|c: char| c == '<' || c.is_ascii_whitespace()).unwrap_or(after.len());
        if length == 0 {
            return Err("<|channel|> without a channel".into());
        }
        read.insert("channel".into(), json!(after[..length]));
        text = format!("{before}{}", &after[length..]);
    }
    let text = text.replace("<|constrain|>", " <|constrain|>");
    // the ends lose all white space, but only ASCII separates words
    let mut words: Vec<&str> = text.trim().split([' ', '\t', '\n', '\x0c', '\r']).filter(|word| !word.is_empty()).collect();
    let mut given = role.unwrap_or_default();
    if role.is_none() {
        given = words.first().ok_or("a header without a role")?;
        if !ROLES.contains(&given) {
            // the name of a tool
            if words.len() == 1 && !given.starts_with("to=") {
                return Err(format!("unknown role {given}"));
            }
            read.insert("name".into(), json!(words.remove(0)));
            given = "tool";
        } else if given == "tool" {
            read.insert("name".into(), json!(given));
        }
    }
    read.insert("role".into(), json!(given));
    if words.first() == Some(&given) {
        words.remove(0);
    }
    if words.len() > 1 && !words[words.len() - 1].starts_with("to=") {
        read.insert("content_type".into(), json!(words.pop()));
    }
    if let Some(recipient) = words.pop() {
        read.insert("recipient".into(), json!(recipient.strip_prefix("to=").unwrap_or(recipient)));
    }
    if words.is_empty() {
        Ok(read)
    } else {
        Err(format!("unexpected words in a header: {}", words.join(" ")))
    }
}

fn main() -> io::Result<()> {
    let mut output = io::stdout();
    for line in io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let mut answer = json!({"id": asked["id"]});
        match asked["text"].as_str() {
            Some(text) if asked["kind"] == "parse" && asked["strictness"] == "strict" => {
                let (messages, error) = parse(text, asked["role"].as_str());
                answer["messages"] = json!(messages);
                if let Some(error) = error {
                    answer["error"] = json!(error);
                }
            }
            _ => answer["unsupported"] = json!(true),
        }
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
