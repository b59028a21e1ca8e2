//! Our reading of a BPE file and our model against the crate's, over files of every form.

use super::*;
use serde_json::json;

/// A small generator of numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn file(model: Value) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null, "model": model
    })
}

fn small_model() -> Value {
    json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4, "<unk>": 5}, "merges": ["a b", "ab c"]
    })
}

fn ours(json: &str) -> Option<Tokenizer> {
    Tokenizer::read_bpe(json.as_bytes()).map(|pipeline| Tokenizer::from_pipeline(pipeline).expect("a good file"))
}

fn by_the_crate(json: &str) -> Tokenizer {
    let pipeline = Tokenizer::read_any(json.as_bytes()).expect("a good file");
    Tokenizer::from_pipeline(pipeline).expect("a good file")
}

fn outcome<T>(result: Result<T, Failure>) -> Result<T, (Status, String)> {
    result.map_err(|failure| (failure.status, failure.message))
}

fn assert_same(json: &str, texts: &[String], random: &mut Random) {
    let (ours, theirs) = (ours(json).expect("plainly a BPE"), by_the_crate(json));
    assert_eq!(ours.vocab_size(), theirs.vocab_size());
    assert_eq!(ours.special_ids(), theirs.special_ids());
    let id_limit = theirs.vocab_size() * 3 + 50;
    for id in (0..id_limit as u32).chain([u32::MAX - 1, u32::MAX]) {
        let token = theirs.id_to_token(id);
        assert_eq!(ours.id_to_token(id), token);
        if let Some(token) = token {
            assert_eq!(ours.token_to_id(&token), theirs.token_to_id(&token));
        }
    }
    // Twice: the second time what a word became is remembered.
    for text in texts.iter().chain(texts) {
        for special in [false, true] {
            let expected = outcome(theirs.encode(text, special));
            assert_eq!(outcome(ours.encode(text, special)), expected, "{text:?} with {json}");
        }
    }
    for _ in 0..20 {
        let ids: Vec<u32> = (0..random.below(12)).map(|_| random.below(id_limit) as u32).collect();
        for skip in [false, true] {
            assert_eq!(outcome(ours.decode(&ids, skip)), outcome(theirs.decode(&ids, skip)));
        }
    }
}

/// Words of letters that are in the vocabularies below, that are not, and of added tokens.
fn texts(random: &mut Random, count: usize) -> Vec<String> {
    const PIECES: [&str; 12] = ["a", "b", "c", "d", "é", "日", "x", "😀", " ", "<tag>", "<s>", "\u{1}"];
    let word = |random: &mut Random| (0..random.below(14)).map(|_| PIECES[random.below(PIECES.len())]).collect();
    (0..count).map(|_| word(random)).collect()
}

/// A vocabulary of single characters and of what random merges make of it, its ids in any order and with holes.
fn random_model(random: &mut Random) -> Value {
    let (prefix, suffix) = (["", "", "#", "é"][random.below(4)], ["", "", "", "</w>"][random.below(4)]);
    let mut tokens: Vec<String> = ["a", "b", "c", "d", "é", "日", " "].map(String::from).to_vec();
    if random.below(2) == 0 {
        tokens.push("<unk>".into());
    }
    for byte in 0..=255 {
        if random.below(64) != 0 {
            tokens.push(format!("<0x{byte:02X}>"));
        }
    }
    for letter in ["a", "b", "c", "é", "日"] {
        tokens.extend([format!("{prefix}{letter}"), format!("{prefix}{letter}{suffix}"), format!("{letter}{suffix}")]);
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for _ in 0..random.below(40) {
        let pick = |random: &mut Random| tokens[random.below(tokens.len())].clone();
        let (left, right) = (pick(random), pick(random));
        if left.contains("0x") || right.contains("0x") || !right.starts_with(prefix) || right.contains(' ') {
            continue;
        }
        tokens.push(format!("{left}{}", &right[prefix.len()..]));
        pairs.push((left, right));
    }
    if !pairs.is_empty() && random.below(4) == 0 {
        pairs.push(pairs[0].clone());
    }
    let mut ids: Vec<usize> = (0..tokens.len() * 2).collect();
    let mut vocab = serde_json::Map::new();
    for token in tokens {
        vocab.entry(token).or_insert_with(|| json!(ids.swap_remove(random.below(ids.len()))));
    }
    let as_lines = random.below(2) == 0 && pairs.iter().all(|(left, _)| !left.contains(' '));
    let mut merges: Vec<Value> = pairs
        .iter()
        .map(|(left, right)| if as_lines { json!(format!("{left} {right}")) } else { json!([left, right]) })
        .collect();
    if as_lines && random.below(2) == 0 {
        merges.insert(0, json!("#version: 0.2"));
    }
    let optional = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let mut flag = || [Value::Null, json!(true), json!(false)][random.below(3)].clone();
    let (fuse, fallback, ignore) = (flag(), flag(), flag());
    let unk = optional(["", "<unk>"][random.below(2)]);
    json!({
        "type": "BPE", "dropout": null, "unk_token": unk,
        "continuing_subword_prefix": optional(prefix), "end_of_word_suffix": optional(suffix), "fuse_unk": fuse,
        "byte_fallback": fallback, "ignore_merges": ignore, "vocab": vocab, "merges": merges
    })
}

#[test]
fn any_bpe_is_the_crates() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..300 {
        let mut json = file(random_model(&mut random));
        let normalized = random.below(2) == 0;
        json["added_tokens"] = json!([
            {"id": 900, "content": "<tag>", "single_word": false, "lstrip": true, "rstrip": false,
             "normalized": normalized, "special": false},
            {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": true, "normalized": false,
             "special": true}
        ]);
        if random.below(2) == 0 {
            json["decoder"] = json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]});
        }
        if random.below(2) == 0 {
            json["pre_tokenizer"] = json!({"type": "Split", "pattern": {"String": " "},
                                           "behavior": "MergedWithPrevious", "invert": false});
        }
        let texts = texts(&mut random, 40);
        assert_same(&json.to_string(), &texts, &mut random);
    }
}

#[test]
fn the_fixture_is_the_crates() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/tiny_llm/tokenizer/tokenizer.json");
    let json = std::fs::read_to_string(path).expect("the fixture");
    let mut random = Random(7);
    let mut texts = texts(&mut random, 100);
    let more = [include_str!("tokenizer.rs"), "Grüße 日本語 😀\n\n\t x", "<|im_start|>user\nhi<|im_end|>"];
    texts.extend(more.map(String::from));
    assert_same(&json, &texts, &mut random);
    // The same file in one line, and with every character outside of ASCII escaped.
    let value: Value = serde_json::from_str(&json).expect("JSON");
    assert_same(&value.to_string(), &texts, &mut random);
    let escape = |c: char| {
        let escape_unit = |unit: &u16| format!("\\u{unit:04x}");
        if c.is_ascii() { c.to_string() } else { c.encode_utf16(&mut [0; 2]).iter().map(escape_unit).collect() }
    };
    assert_same(&value.to_string().chars().map(escape).collect::<String>(), &texts, &mut random);
}

/// A file as text, `from` replaced by `to`.
fn changed(from: &str, to: &str) -> String {
    let json = file(small_model()).to_string();
    assert!(json.contains(from), "{from} is not in {json}");
    json.replacen(from, to, 1)
}

#[test]
fn what_is_not_plainly_a_bpe_is_left_to_the_crate() {
    let changes = [
        // Good files with something odd.
        (r#""type":"BPE","#, ""),
        (r#""dropout":null"#, r#""dropout":0.5"#),
        (r#""dropout":null"#, r#""dropout":null,"unknown":[]"#),
        (r#""fuse_unk""#, r#""fuse_\u0075nk""#),
        (r#""<unk>":5"#, r#""<unk>":5,"a":6"#),
        (r#""<unk>":5"#, r#""<unk>":5,"twice":0"#),
        (r#""<unk>":5"#, r#""<unk>":4000000000"#),
        (r#""vocab":{"#, r#""merges":[],"vocab":{"#),
        (r#""version":"1.0""#, r#""version":"1.0","version":"1.0""#),
        // Bad ones.
        (r#""type":"BPE""#, r#""type":"BTE""#),
        (r#""type":"BPE""#, r#""type":"WordPiece""#),
        (r#""dropout":null"#, r#""dropout":7"#),
        (r#""<unk>":5"#, r#""<unk>":5.0"#),
        (r#""<unk>":5"#, r#""<unk>":-5"#),
        (r#""<unk>":5"#, r#""<unk>":4294967296"#),
        (r#""<unk>":5"#, r#""<unk>":"5""#),
        (r#""<unk>":5"#, r#""\ud800":5"#),
        (r#""fuse_unk":false"#, r#""fuse_unk":0"#),
        (r#""a b""#, r#""a x""#),
        (r#""a b""#, r#""b c""#),
        (r#""a b""#, r#""ab""#),
        (r#""a b""#, r#""a  b""#),
        (r#""a b""#, r#"["a","b","c"]"#),
        (r#""a b","ab c""#, r#"["a","b","c"]"#),
        (r#""a b","ab c""#, r#"["a"]"#),
        (r#""a b","ab c""#, r#"["a",3]"#),
        (r#""a b","ab c""#, r##""#version",["a","b"]"##),
        (r#""a b""#, r#"["a","b"]"#),
        (r#""a b""#, "null"),
        (r#""continuing_subword_prefix":null"#, r#""continuing_subword_prefix":"three""#),
        (r#""merges":"#, r#""mergers":"#),
        (r#""vocab":"#, r#""vocabs":"#),
        (r#""version":"1.0""#, r#""version":"2.0""#),
        (r#""version":"1.0""#, r#""unknown":1,"version":"1.0""#),
        (r#""decoder":null"#, r#""decoder":{"type":"None"}"#),
    ];
    for (from, to) in changes {
        let json = changed(from, to);
        // Members around the model are the crate's own reading in both cases.
        assert!(from.contains("version") || ours(&json).is_none(), "{json}");
        let theirs = outcome(Tokenizer::read_any(json.as_bytes()).and_then(Tokenizer::from_pipeline));
        let result = outcome(Tokenizer::from_json(json.as_bytes()));
        assert_eq!(result.as_ref().err(), theirs.as_ref().err(), "{json}");
        if let (Ok(ours), Ok(theirs)) = (result, theirs) {
            assert_eq!(ours.encode("abcab", false).unwrap(), theirs.encode("abcab", false).unwrap(), "{json}");
        }
    }
}

#[test]
fn every_truncation_has_the_crates_error() {
    let json = file(small_model()).to_string();
    assert!(ours(&json).is_some());
    for size in 0..json.len() {
        let part = &json.as_bytes()[..size];
        let expected = outcome(Tokenizer::read_any(part).and_then(Tokenizer::from_pipeline)).err();
        assert!(expected.is_some());
        assert_eq!(outcome(Tokenizer::from_json(part)).err(), expected);
    }
}

#[test]
fn an_unknown_character_without_its_token_is_an_error() {
    let json = changed(r#""unk_token":null"#, r#""unk_token":"<none>""#);
    let texts = ["abc", "abx", "xx"].map(String::from);
    assert_same(&json, &texts, &mut Random(3));
    let failure = ours(&json).expect("plainly a BPE").encode("abx", false).expect_err("no such token");
    assert!(failure.message.contains("<none>"), "{}", failure.message);
}

#[test]
fn a_template_with_a_token_of_no_id_is_the_files_fault() {
    let mut broken = file(small_model());
    broken["post_processor"] = json!({
        "type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
        "special_tokens": {"<unk>": {"id": "<unk>", "ids": [5], "tokens": ["<unk>"]}}
    });
    let (status, message) = outcome(Tokenizer::from_json(broken.to_string().as_bytes())).err().expect("refused");
    assert_eq!(status, Status::Malformed);
    assert!(message.contains("no entry found") && !message.contains(".rs"), "{message}");
}
