//! `inkstone bench`: every workload, tiny. Each prints the fields that programs rely on, in one
//! object a line; each bar that does not depend on the clock holds at this size too.

mod common;

use common::{SMALL, json_ok, run};
use serde_json::Value;
use std::path::Path;

/// Runs `bench` with these words, `SMALL` options and a chart; its results. Each has these fields
/// and no others, in this order.
fn bench(words: &str, fields: &str, bars: usize) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("chart.svg");
    let shown = plot.display().to_string();
    let words: Vec<&str> = words.split_whitespace().collect();
    let arguments = [&["bench"], &words[..], &["--plot", &shown], &SMALL].concat();
    let lines = json_ok(&arguments);
    let expected: Vec<&str> = fields.split_whitespace().collect();
    for line in &lines {
        let names: Vec<&str> = line
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(names, expected);
        assert_eq!(line["workload"], words[0]);
        if let Some(ratio) = line.get("memory_ratio") {
            assert!(ratio.as_f64().unwrap() > 0.0, "{line}");
        }
    }
    assert_eq!(series(&plot), bars, "series of the chart");
    lines
}

/// The lines or bars in a chart, which must be an SVG file: what is filled or drawn in a colour
/// without being a dot or a part of the legend.
fn series(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    let svg = roxmltree::Document::parse(&text).expect("well-formed XML");
    let root = svg.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    assert_eq!(
        root.tag_name().namespace(),
        Some("http://www.w3.org/2000/svg")
    );
    let number = |node: &roxmltree::Node<'_, '_>, name| -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    };
    let height = number(&root, "height");
    let is_line = |node: &roxmltree::Node<'_, '_>| {
        node.has_tag_name(("http://www.w3.org/2000/svg", "polyline"))
            && node.attribute("stroke-width") == Some("2")
    };
    let is_bar = |node: &roxmltree::Node<'_, '_>| {
        node.has_tag_name(("http://www.w3.org/2000/svg", "rect"))
            && node.attribute("fill") != Some("#FFFFFF")
    };
    let lines = root.descendants().filter(is_line).count();
    let rectangles: Vec<_> = root.descendants().filter(is_bar).collect();
    assert!(
        rectangles
            .iter()
            .all(|bar| number(bar, "y") + number(bar, "height") <= height)
    );
    if lines > 0 {
        let legend = rectangles.len();
        assert!(
            legend == lines || (legend == 0 && lines == 1),
            "{legend} names of {lines} lines"
        );
        return lines;
    }
    rectangles.len()
}

fn number(line: &Value, name: &str) -> f64 {
    line[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name}: {line}"))
}

const WRITEBENCH: &str = "workload doublewrite skip_fresh fill bulk page_size rows insert_s flush_s \
    drop_s log_bytes log_bytes_per_row log_bytes_per_payload_byte log_bytes_written data_bytes \
    doublewrite_bytes data_pages doublewrite_pages write_calls pages_per_write \
    doublewrite_write_calls log_write_calls syncs data_syncs doublewrite_syncs log_syncs \
    peak_resident_bytes memory_budget_bytes memory_ratio round";

#[test]
fn writebench_counts_what_each_configuration_writes() {
    let lines = bench("writebench --rows 3000", WRITEBENCH, 18);
    assert_eq!(lines.len(), 6, "three configurations, two page sizes");
    for line in &lines {
        let field = |name: &str| number(line, name);
        assert_eq!(line["fill"], "padding");
        assert!(field("log_bytes") <= 60.0 * 3000.0, "{line}");
        assert_eq!(
            field("data_bytes"),
            field("data_pages") * field("page_size")
        );
        assert!(field("data_bytes") > 3000.0 * 1793.0);
        assert!(field("pages_per_write") >= 16.0, "{line}");
        assert!(field("insert_s") > 0.0 && field("flush_s") > 0.0 && field("drop_s") > 0.0);
        let syncs = field("data_syncs") + field("doublewrite_syncs") + field("log_syncs");
        assert_eq!(field("syncs"), syncs);
        assert!(syncs > 0.0);
        let (pages, doubled) = (field("data_pages"), field("doublewrite_pages"));
        match (line["doublewrite"].as_str(), line["skip_fresh"].as_bool()) {
            (Some("on"), Some(false)) => {
                assert_eq!(doubled, pages);
                assert!(field("doublewrite_bytes") > field("data_bytes"));
            }
            (Some("on"), Some(true)) => assert!(doubled * 20.0 < pages, "{line}"),
            _ => assert_eq!(field("doublewrite_bytes"), 0.0),
        }
    }
}

#[test]
fn writebench_of_random_text_logs_little_more_than_the_text() {
    let words =
        "writebench --rows 2000 --fill random,padding --page-size 16k --doublewrite skip --bulk";
    let lines = bench(words, WRITEBENCH, 6);
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["fill"], &lines[1]["fill"]),
        (&"random".into(), &"padding".into())
    );
    assert_eq!(lines[0]["bulk"], true);
    assert!(number(&lines[0], "log_bytes_per_payload_byte") <= 1.03);
}

#[test]
fn logvolume_stays_below_its_bars() {
    let lines = bench(
        "logvolume --rows 20000 --table-rows 2000 --transactions 100",
        "workload case rows log_bytes log_bytes_per_row seconds rows_per_s",
        4,
    );
    let bars = [
        ("row_by_row", 16.0, 20000),
        ("bulk", 12.0, 20000),
        ("autocommit_insert", 80.0, 100),
        ("autocommit_update", 300.0, 100),
    ];
    assert_eq!(lines.len(), bars.len());
    for (line, (case, bar, rows)) in lines.iter().zip(bars) {
        assert_eq!(line["case"], case);
        assert_eq!(line["rows"], rows);
        let per_row = number(line, "log_bytes_per_row");
        assert!(per_row > 1.0 && per_row <= bar, "{line}");
        assert!(number(line, "rows_per_s") > 0.0);
    }
}

#[test]
fn commit_runs_the_matrix_and_measures_the_device() {
    let lines = bench(
        "commit --clients 1,4 --seconds 0.2 --tables 2 --rows 500",
        "workload flush_log_at_trx_commit log_file_buffering log_write clients seconds \
         commits_per_s p50_us p99_us p999_us max_us worst_second median_second worst_over_median cpu_us_per_operation \
         log_bytes_per_commit log_bytes_written_per_commit commits_per_sync device_syncs_per_s \
         commits_per_device_sync checkpoints pages_written bytes_written_per_commit \
         device_bytes_written device_bytes_written_per_commit \
         peak_resident_bytes memory_budget_bytes memory_ratio",
        12,
    );
    assert_eq!(
        lines.len(),
        24,
        "3 settings, 2 kinds of buffering, 2 of writing, 2 of clients"
    );
    for line in &lines {
        let field = |name: &str| number(line, name);
        assert!(
            field("commits_per_s") > 0.0 && field("device_syncs_per_s") > 0.0,
            "{line}"
        );
        assert!(field("p50_us") <= field("p99_us") && field("p99_us") <= field("max_us"));
        assert!(field("log_bytes_per_commit") > 120.0, "{line}");
        assert!(line["worst_second"].is_null(), "shorter than two seconds");
        if line["flush_log_at_trx_commit"] == 1 && line["clients"] == 1 {
            assert!(
                field("commits_per_sync") <= 1.01,
                "each commit waits for its sync: {line}"
            );
        }
    }
}

#[test]
fn a_run_of_two_seconds_has_a_worst_one() {
    let words = "commit --clients 4 --seconds 2 --tables 1 --rows 500 --flush-log-at-trx-commit 2 \
                 --log-file-buffering on --log-write sync";
    let words: Vec<&str> = words.split_whitespace().collect();
    let line = &json_ok(&[&["bench"], &words[..], &SMALL].concat())[0];
    let (worst, median) = (number(line, "worst_second"), number(line, "median_second"));
    assert!(worst > 0.0 && worst <= median, "{line}");
    let seconds = number(line, "seconds");
    assert!(
        worst <= number(line, "commits_per_s") * seconds / 2.0 * 1.01,
        "{line}"
    );
}

/// Fields of `bench update`.
const UPDATE: &str = "workload layout turn content distribution flush_method clients buffer_pool_instances buffer_pool_size doublewrite log_file_buffering rows \
     data_bytes data_page_cache seconds updates_per_s p50_us p99_us p999_us max_us \
     worst_second median_second worst_over_median cpu_us_per_operation bytes_written_per_update \
     device_bytes_written_per_update pages_read pages_written doublewrite_pages \
     page_writes_per_page_flushed buffer_frame_waits checkpoint_waits device_reads_per_s \
     reads_per_device_read peak_resident_bytes memory_budget_bytes memory_ratio";

#[test]
fn update_says_where_its_bytes_go() {
    let lines = bench(
        "update --buffer-pool-size 2m --seconds 0.3 --warmup 0.1 --clients 2,8",
        UPDATE,
        4,
    );
    assert_eq!(
        lines.len(),
        8,
        "2 flush methods, 1 or 8 instances, 2 numbers of clients"
    );
    for line in &lines {
        let field = |name: &str| number(line, name);
        assert_eq!(field("buffer_pool_size"), f64::from(2 << 20));
        assert!(
            field("data_bytes") >= 5.0 * field("buffer_pool_size"),
            "{line}"
        );
        assert_eq!(line["data_page_cache"], false);
        assert!(
            field("pages_read") > 0.0 && field("device_reads_per_s") > 0.0,
            "{line}"
        );
        // But for the two batches of 32 pages that may be under way at the begin and at the end.
        let (written, doubled) = (field("pages_written"), field("doublewrite_pages"));
        assert!((written - doubled).abs() <= 64.0, "{line}");
        let classes = line["bytes_written_per_update"].as_object().unwrap();
        let names: Vec<&str> = classes.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "log",
                "data",
                "doublewrite",
                "place_maps",
                "control",
                "versions"
            ]
        );
        assert!(classes["data"].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn layouts_are_measured_by_turns() {
    let words = "update --buffer-pool-size 2m --seconds 0.3 --warmup 0 --clients 4 --turns 2 \
                 --layout in_place,doublewrite_off,placed,placed_lz4,placed_zstd --content sysbench \
                 --distribution zipf --flush-method O_DIRECT --buffer-pool-instances 1";
    let lines = bench(words, UPDATE, 5);
    let order: Vec<&str> = lines
        .iter()
        .map(|l| l["layout"].as_str().unwrap())
        .collect();
    let turn = [
        "in_place",
        "doublewrite_off",
        "placed",
        "placed_lz4",
        "placed_zstd",
    ];
    assert_eq!(order, [turn, turn].concat());
    for line in &lines {
        let copies = line["bytes_written_per_update"]["doublewrite"]
            .as_f64()
            .unwrap();
        assert_eq!(copies > 0.0, line["layout"] == "in_place", "{line}");
        assert!(number(line, "updates_per_s") > 0.0, "{line}");
        assert_eq!(
            (&line["content"], &line["distribution"]),
            (&"sysbench".into(), &"zipf".into())
        );
    }
}

#[test]
fn rows_are_read_from_an_empty_pool() {
    let words = "cold --rows 20000 --points 600 --updates 3000 --buffer-pool-size 2m \
                 --layout in_place,placed";
    let fields = "workload layout turn case content rows rows_updated buffer_pool_size data_bytes \
                  seconds rows_read rows_per_s pages_read data_read_calls pages_per_read \
                  peak_resident_bytes memory_budget_bytes memory_ratio";
    let lines = bench(words, fields, 6);
    assert_eq!(lines.len(), 6, "2 layouts, 3 cases");
    for line in &lines {
        let pages = number(line, "pages_read");
        let read = if line["case"] == "points" {
            600.0
        } else {
            20000.0
        };
        assert_eq!(number(line, "rows_read"), read, "{line}");
        assert!(
            pages >= number(line, "data_read_calls") && pages > 100.0,
            "{line}"
        );
    }
}

#[test]
fn update_refuses_data_that_the_pool_could_hold() {
    let words = [
        "bench",
        "update",
        "--rows",
        "1000",
        "--buffer-pool-size",
        "4m",
    ];
    let (code, out, err) = run(&words);
    assert_eq!(code, 2, "{out}{err}");
    assert!(
        err.contains("at least 5 times the buffer pool of 4.0 MiB"),
        "{err}"
    );
}

#[test]
fn reads_and_loads_run() {
    let lines = bench(
        "reads --rows 2000 --seconds 0.2",
        "workload case rows value_bytes clients operations_per_s rows_per_s times_first p50_us \
         p99_us p999_us max_us worst_second median_second worst_over_median cpu_us_per_operation \
         peak_resident_bytes memory_budget_bytes memory_ratio",
        2,
    );
    assert_eq!(lines.len(), 4, "points and scans, 1 and 2 threads");
    assert!(
        lines
            .iter()
            .all(|line| number(line, "operations_per_s") > 0.0)
    );
    let lines = bench(
        "load --rows 5000 --wide-rows 500 --clients 2",
        "workload case fill clients rows payload_bytes insert_s flush_s insert_cpu_s rows_per_s log_bytes data_bytes \
         doublewrite_bytes written_bytes written_per_payload device_write_bytes_per_s device_new_file_bytes_per_s \
         written_per_device_write written_per_device_new_file payload_per_device_write \
         peak_resident_bytes memory_budget_bytes memory_ratio",
        4,
    );
    let cases: Vec<&Value> = lines.iter().map(|line| &line["case"]).collect();
    assert_eq!(
        cases,
        [
            "narrow_row_by_row",
            "narrow_bulk",
            "wide_row_by_row",
            "wide_bulk"
        ]
    );
    for line in &lines {
        assert!(
            number(line, "written_bytes") > number(line, "payload_bytes"),
            "{line}"
        );
        assert!(number(line, "device_write_bytes_per_s") > 0.0);
    }
}

#[test]
fn recovery_reads_what_a_killed_process_wrote() {
    let lines = bench(
        "recovery --redo-size 4m --rows 2000 --loser-rows 300 --tables 3 --clients 2 --rounds 2 \
         --seconds 0.2 --case updates,narrow,inserts,wide",
        "workload case round rows loser_rows tables clients normal_rate open_ms first_read_ms \
         first_commit_ms peak_memory redo_done_ms rollback_done_ms rate_after_10_s log_bytes \
         seconds mib_per_s scan_s scan_mb_per_s apply_s batches records records_applied \
         pages_applied pages_read pages_left torn_pages_repaired losers rows_undone peak_resident_bytes \
         memory_budget_bytes memory_ratio",
        24,
    );
    assert_eq!(lines.len(), 8);
    for line in &lines {
        assert!(number(line, "losers") >= 1.0, "{line}");
        assert!(number(line, "rows_undone") >= 300.0, "{line}");
        assert!(number(line, "first_read_ms") >= number(line, "open_ms"));
        assert!(number(line, "first_commit_ms") >= number(line, "first_read_ms"));
        assert!(number(line, "normal_rate") > 0.0 && number(line, "rate_after_10_s") > 0.0);
        // A checkpoint may come between the last look at the log and the kill.
        assert!(number(line, "log_bytes") >= f64::from(3 << 20), "{line}");
        let records = match line["case"].as_str() {
            Some("wide") => 2000.0,
            _ => 10_000.0,
        };
        assert!(number(line, "records") > records, "{line}");
        assert!(number(line, "seconds") > 0.0);
    }
}

#[test]
fn open_times_a_database_that_was_closed_in_order() {
    let fields = "workload round data_bytes rows seconds first_read_s peak_resident_bytes \
                  memory_budget_bytes memory_ratio";
    let lines = bench("open --size 4m --rounds 2", fields, 4);
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(number(line, "data_bytes") >= f64::from(4 << 20), "{line}");
        assert!(
            number(line, "first_read_s") >= number(line, "seconds"),
            "{line}"
        );
    }
}

const GIANT: &str = "workload case rows log_file_size first_tenth_rows_per_s last_tenth_rows_per_s \
    giant_s others_rows_per_s others_rows_per_s_alone peak_memory memory_budget_bytes memory_ratio \
    log_bytes log_files_bytes undo_bytes rollback_s rows_per_transaction";

#[test]
fn giant_transactions_are_measured_and_rolled_back() {
    let words = "giant --rows 3000 --seconds 0.2 --rounds 1 --clients 2";
    let lines = bench(words, GIANT, 12);
    let cases: Vec<&str> = lines.iter().map(|l| l["case"].as_str().unwrap()).collect();
    let all = [
        "insert_ascending",
        "insert_random",
        "update",
        "delete",
        "delete_range",
        "idle",
    ];
    assert_eq!(cases, all);
    for line in &lines {
        let field = |name: &str| number(line, name);
        assert_eq!(field("rows"), 3000.0);
        assert_eq!(field("log_file_size"), f64::from(64 << 20));
        for name in [
            "first_tenth_rows_per_s",
            "last_tenth_rows_per_s",
            "rollback_s",
        ] {
            assert!(field(name) > 0.0, "{name}: {line}");
        }
        // The texts of a row at least, where it has a new one or loses one.
        let least = match line["case"].as_str() {
            Some("delete") => 10.0,
            // A record for each leaf, but for the first rows.
            Some("delete_range") => 1.0,
            _ => 120.0,
        };
        assert!(field("log_bytes") >= least * 3000.0, "{line}");
        assert!(field("log_files_bytes") >= field("log_bytes"), "{line}");
        let has_others = line["case"] == "idle";
        assert_eq!(line["others_rows_per_s"].is_number(), has_others, "{line}");
        assert_eq!(
            line["others_rows_per_s_alone"].is_number(),
            has_others,
            "{line}"
        );
    }
}

#[test]
fn the_rows_of_a_giant_transaction_follow_from_the_size_of_the_log() {
    // Not 1: near the log's size it depends on the machine how many rows' undo is moved.
    let words = "bench giant --times 2,4 --case delete";
    let words: Vec<&str> = words.split_whitespace().collect();
    let lines = json_ok(&[&words[..], &SMALL, &["--set", "log_file_size=4m"]].concat());
    assert_eq!(lines.len(), 2);
    assert_eq!(number(&lines[0], "log_file_size"), f64::from(4 << 20));
    assert_eq!(number(&lines[1], "rows"), 2.0 * number(&lines[0], "rows"));
    for (line, times) in lines.iter().zip([2.0, 4.0]) {
        let share = number(line, "log_bytes") / number(line, "log_file_size") / times;
        assert!((0.9..1.5).contains(&share), "{line}");
    }
}

#[test]
fn a_table_for_people_and_a_chart_that_cannot_be_written() {
    let words = "bench logvolume --rows 500 --table-rows 50 --transactions 5 --case bulk";
    let words: Vec<&str> = words.split_whitespace().collect();
    let (code, out, err) = run(&[&words[..], &SMALL].concat());
    assert_eq!(code, 0, "{err}");
    let heading = out.lines().next().unwrap();
    assert!(
        heading.starts_with("case") && heading.contains("log_bytes_per_row"),
        "{out}"
    );
    assert!(out.lines().nth(1).unwrap().starts_with("bulk"), "{out}");
    let (code, _, err) = run(&[&words[..], &["--plot", "/nowhere/chart.svg"]].concat());
    assert_eq!(code, 3);
    assert!(err.contains("/nowhere/chart.svg"), "{err}");
}
