// Times llguidance as grammar_bench times this project's engine (see ../walk.h for the rules and the files):
//
//   llguidance_bench VOCABULARY CASES --rows FILE [--from N] [--count N] [--limit SECONDS]
//
// The tokenizer is declared not canonical, so that masks are full masks. Parsers of one schema share its lexer's
// tables; slices are the default ones.
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, TokenParser};
use serde_json::{json, Value};

type Failure = Box<dyn std::error::Error>;

// The byte of each character in which byte-level vocabularies write.
fn byte_of_character() -> HashMap<char, u8> {
    let mut map = HashMap::new();
    let mut shifted = 256u32;
    for byte in 0u32..256 {
        let plain = (0x21..=0x7e).contains(&byte) || (0xa1..=0xac).contains(&byte) || (0xae..=0xff).contains(&byte);
        let code = if plain { byte } else { shifted };
        shifted += u32::from(!plain);
        map.insert(char::from_u32(code).unwrap(), byte as u8);
    }
    map
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().map_or(vec![], |list| {
        list.iter().filter_map(|id| id.as_u64()).map(|id| id as u32).collect()
    })
}

fn factory(path: &str) -> Result<ParserFactory, Failure> {
    let source: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let bytes = byte_of_character();
    let special = ids(&source["special_ids"]);
    let ends = ids(&source["end_ids"]);
    let mut words = Vec::new();
    for (id, token) in source["tokens"].as_array().ok_or("no tokens")?.iter().enumerate() {
        let text = token.as_str().ok_or("a token is no text")?;
        let mut word = Vec::new();
        if special.contains(&(id as u32)) {
            word.push(TokTrie::SPECIAL_TOKEN_MARKER);
            word.extend_from_slice(text.as_bytes());
        } else {
            for c in text.chars() {
                word.push(*bytes.get(&c).ok_or("the vocabulary is not byte-level")?);
            }
        }
        words.push(word);
    }
    let info = TokRxInfo::new(words.len() as u32, ends[0]);
    let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&env)?;
    factory.quiet();
    Ok(factory)
}

fn mask(parser: &mut TokenParser) -> Result<SimpleVob, Failure> {
    if parser.stop_reason() != StopReason::NotStopped {
        return Ok(parser.token_env.tok_trie().eos_token_set());
    }
    Ok(parser.compute_mask()?)
}

fn accept(parser: &mut TokenParser, token: u32) -> bool {
    parser.stop_reason() == StopReason::NotStopped
        && matches!(parser.consume_token(token), Ok(0))
        && parser.check_stop().is_ok()
}

// Whether the instance is accepted; mismatches and times of its steps are added.
fn walk(
    base: &TokenParser,
    tokens: &[u32],
    first: bool,
    steps: &mut Vec<u64>,
    mismatches: &mut u64,
) -> Result<bool, Failure> {
    let mut parser = base.clone();
    for (i, &token) in tokens.iter().enumerate() {
        let start = Instant::now();
        let allowed = mask(&mut parser)?;
        let accepted = accept(&mut parser, token);
        let time = start.elapsed().as_nanos() as u64;
        *mismatches += u64::from(allowed.is_allowed(token) != accepted);
        if !(first && i == 0) {
            steps.push(time); // the very first mask counts in the time to the first mask
        }
        if !accepted {
            return Ok(false);
        }
    }
    Ok(parser.is_accepting())
}

fn run(factory: &ParserFactory, case: &Value) -> Value {
    let none = vec![];
    let instances = case["instances"].as_array().unwrap_or(&none);
    let mut row = json!({"name": case["name"], "status": "ok", "ttfm_ms": 0.0, "valid_rejected": 0, "invalid_accepted": 0,
                         "mismatches": 0, "memory_bytes": 0, "error": "", "steps_ns": []});
    let start = Instant::now();
    let compile = || -> Result<TokenParser, Failure> {
        let schema: Value = serde_json::from_str(case["schema"].as_str().ok_or("no schema")?)?;
        let mut parser = factory.create_parser(TopLevelGrammar::from_json_schema(schema))?;
        parser.start_without_prompt();
        mask(&mut parser)?;
        Ok(parser)
    };
    let base = match compile() {
        Ok(parser) => parser,
        Err(error) => {
            let text = error.to_string();
            // A schema without any value is right to refuse where no instance is valid.
            let empty = text.contains("nsatisfiable") && instances.iter().all(|instance| instance["valid"] == false);
            row["status"] = json!(if empty { "ok" } else { "refused" });
            row["error"] = json!(text);
            return row;
        }
    };
    row["ttfm_ms"] = json!(start.elapsed().as_secs_f64() * 1e3);
    let (mut steps, mut mismatches, mut rejected, mut wrongly) = (vec![], 0, 0, 0);
    for (i, instance) in instances.iter().enumerate() {
        match walk(&base, &ids(&instance["tokens"]), i == 0, &mut steps, &mut mismatches) {
            Ok(accepted) => {
                let valid = instance["valid"] == true;
                rejected += u64::from(valid && !accepted);
                wrongly += u64::from(!valid && accepted);
            }
            Err(error) => {
                row["status"] = json!("stopped");
                row["error"] = json!(error.to_string());
                break;
            }
        }
    }
    row["valid_rejected"] = json!(rejected);
    row["invalid_accepted"] = json!(wrongly);
    row["mismatches"] = json!(mismatches);
    row["steps_ns"] = json!(steps);
    row
}

fn main() -> Result<(), Failure> {
    let (mut files, mut rows, mut from, mut count, mut limit) = (vec![], String::new(), 0usize, usize::MAX, 120u64);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            files.push(argument);
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--rows" => rows = value,
            "--from" => from = value.parse()?,
            "--count" => count = value.parse()?,
            "--limit" => limit = value.parse()?,
            _ => return Err(format!("no such option: {argument}").into()),
        }
    }
    if files.len() != 2 || rows.is_empty() {
        return Err(
            "usage: llguidance_bench VOCABULARY CASES --rows FILE [--from N] [--count N] [--limit SECONDS]".into(),
        );
    }
    let factory = factory(&files[0])?;
    let mut out = fs::File::create(rows)?;
    // Ends the program when one schema takes too long.
    let begun = Arc::new(AtomicU64::new(0));
    let clock = Instant::now();
    let watched = begun.clone();
    std::thread::spawn(move || loop {
        std::thread::sleep(Duration::from_millis(500));
        if clock.elapsed().as_secs() > watched.load(Ordering::Relaxed) + limit {
            eprintln!("error: no end within the limit");
            std::process::exit(3);
        }
    });
    for line in BufReader::new(fs::File::open(&files[1])?)
        .lines()
        .skip(from)
        .take(count)
    {
        let case: Value = serde_json::from_str(&line?)?;
        begun.store(clock.elapsed().as_secs(), Ordering::Relaxed);
        writeln!(out, "{}", run(&factory, &case))?;
    }
    Ok(())
}
