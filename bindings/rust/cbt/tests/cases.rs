//! The cases that every language answers the same: `tests/c/cases.txt`, which `make_cases.py` there
//! makes and describes. `CBT_CASES` names another copy.

use std::{fs, path::PathBuf, sync::Arc};

use cbt::{
    Answer, BitmapLayout, Bytes, Checker, CheckerOptions, Cursor, Event, Extent, Geometry,
    Operation, Proof, Request, Result, Service, ServiceOptions, StreamOptions,
};

#[derive(Clone, Default)]
struct Case {
    name: String,
    geometry: Geometry,
    bitmap: Option<Vec<u8>>,
    base: Vec<u8>,
    target: Vec<u8>,
    operation: Option<Operation>,
    layout: BitmapLayout,
    list: Vec<Extent>,
    other: Vec<Extent>,
    transforms: Vec<(String, Vec<u64>)>,
    seek: u64,
    error: Option<String>,
    expect: Vec<Extent>,
    streams: Vec<(Vec<u64>, Vec<Vec<u8>>)>,
}

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn extents(text: &str) -> Vec<Extent> {
    text.split_whitespace()
        .map(|word| {
            let (offset, length) = word.split_once('+').unwrap();
            Extent {
                offset: offset.parse().unwrap(),
                length: length.parse().unwrap(),
            }
        })
        .collect()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

fn cases() -> Vec<Case> {
    let path = std::env::var_os("CBT_CASES").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../../tests/c/cases.txt"
            ))
        },
        PathBuf::from,
    );
    let (mut found, mut case) = (Vec::new(), Case::default());
    for line in fs::read_to_string(path).unwrap().lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "#" => {}
            "case" => {
                case = Case {
                    name: rest.to_owned(),
                    ..Case::default()
                }
            }
            "geometry" => {
                let values = numbers(rest);
                case.geometry = Geometry {
                    capacity: values[0],
                    granularity: values[1],
                };
            }
            "bitmap" => case.bitmap = Some(hex(rest)),
            "base" => case.base = hex(rest),
            "target" => case.target = hex(rest),
            "operation" => {
                case.operation = Some(match rest {
                    "xor" => Operation::Xor,
                    "and_not" => Operation::AndNot,
                    "or" => Operation::Or,
                    "and" => Operation::And,
                    _ => panic!("operation {rest}"),
                })
            }
            "layout" => {
                let values = numbers(rest);
                case.layout = BitmapLayout {
                    first_bit: values[0],
                    most_significant_first: values[1] != 0,
                    inverted: values[2] != 0,
                    reversed_word_bytes: values[3] as u32,
                };
            }
            "extents" => case.list = extents(rest),
            "other" => case.other = extents(rest),
            "transform" => {
                let (name, values) = rest.split_once(' ').unwrap_or((rest, ""));
                case.transforms.push((name.to_owned(), numbers(values)));
            }
            "seek" => case.seek = rest.parse().unwrap(),
            "error" => case.error = Some(rest.to_owned()),
            "expect" => case.expect = extents(rest),
            "stream" => case.streams.push((numbers(rest), Vec::new())),
            "message" => case.streams.last_mut().unwrap().1.push(hex(rest)),
            "end" => found.push(case.clone()),
            _ => panic!("line {line}"),
        }
    }
    found
}

impl Case {
    fn input(&self) -> Result<Cursor<'static>> {
        if let Some(operation) = self.operation {
            let (base, target) = (Bytes::copy(&self.base)?, Bytes::owned(self.target.clone())?);
            return Cursor::from_bitmaps(&base, &target, operation, self.layout, self.geometry);
        }
        if let Some(bitmap) = &self.bitmap {
            let bits = Bytes::shared(Arc::from(bitmap.as_slice()))?;
            return Cursor::from_bitmap(&bits, self.layout, self.geometry);
        }
        Cursor::from_extents(&self.list, self.geometry)
    }

    fn cursor(&self) -> Result<Cursor<'static>> {
        let mut cursor = self.input()?;
        for (name, values) in &self.transforms {
            let other = || Cursor::from_extents(&self.other, self.geometry).unwrap();
            cursor = match name.as_str() {
                "coalesce" => cursor.coalesce(values[0])?,
                "split" => cursor.split(values[0])?,
                "align_outward" => cursor.align_outward(values[0])?,
                "clip" => cursor.clip(values[0], values[1])?,
                "to_blocks" => cursor.to_blocks(values[0])?,
                "union" => Cursor::union([cursor, other()])?,
                "intersect" => cursor.intersect(other())?,
                "subtract" => cursor.subtract(other())?,
                _ => panic!("transform {name}"),
            };
        }
        Ok(cursor)
    }

    fn check(&self) {
        let mut cursor = match (self.cursor(), &self.error) {
            (Err(error), Some(expected)) => {
                assert_eq!(error.code().name(), expected, "{}", self.name);
                assert!(!error.message().is_empty());
                return;
            }
            (Ok(_), Some(expected)) => panic!("{}: no {expected}", self.name),
            (made, None) => made.unwrap(),
        };
        for batch in [1, 4, 16, 64, 256, 1024] {
            cursor.set_batch(batch).unwrap();
            cursor.seek(self.seek).unwrap();
            assert_eq!(cursor.extents().unwrap(), self.expect, "{}", self.name);
            cursor.seek(self.seek).unwrap();
            let found: Vec<Extent> = cursor
                .batches()
                .map(|batch| batch.unwrap())
                .flat_map(|batch| batch.extents().collect::<Vec<_>>())
                .collect();
            assert_eq!(found, self.expect, "{}", self.name);
        }
        for (options, messages) in &self.streams {
            self.check_stream(options[0], options[1], options[2], messages);
        }
    }

    fn check_stream(&self, start: u64, most: u64, block: u64, messages: &[Vec<u8>]) {
        let case = self.clone();
        let provider = move |request: &Request<'_>| {
            assert_eq!((request.base(), request.target()), (None, "snap"));
            let answer = Answer::new(case.cursor()?);
            Ok(if block == 0 {
                answer
            } else {
                answer.blocks(block)
            })
        };
        let service = Service::new(provider, &ServiceOptions::default()).unwrap();
        let mut request = b"\x0a\x04snap".to_vec();
        for (field, mut value) in [(2u8, start), (3, most)] {
            request.push(field * 8);
            while value >= 128 {
                request.push((value % 128 + 128) as u8);
                value /= 128;
            }
            request.push(value as u8);
        }
        let method = "/csi.v1.SnapshotMetadata/GetMetadataAllocated";
        let mut stream = service
            .open(method, &request, &StreamOptions::default())
            .unwrap();
        drop(service);
        let rules = CheckerOptions {
            starting_offset: start,
            max_results: most as u32,
            require_proof: true,
        };
        let mut checker = Checker::new(&rules).unwrap();
        let mut sent = 0;
        while let Event::Message(message) = stream.next().unwrap() {
            assert_eq!(
                message.bytes, messages[sent],
                "{}: message {sent} from {start}",
                self.name
            );
            let tuples = checker.message(message.bytes).unwrap();
            assert_eq!(tuples.extents().len() as u64, message.tuples);
            assert_eq!(tuples.capacity, self.geometry.capacity);
            assert_eq!(stream.keep().unwrap().as_slice(), messages[sent]);
            sent += 1;
        }
        assert_eq!(sent, messages.len(), "{}", self.name);
        let trailing = stream.trailing_metadata().unwrap();
        let trailing = trailing
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        assert_eq!(checker.finish(trailing).unwrap(), Proof::Holds);
    }
}

#[test]
fn cases_are_answered_as_by_every_language() {
    let cases = cases();
    assert!(cases.len() > 100);
    for case in &cases {
        case.check();
    }
    println!("{} cases", cases.len());
}
