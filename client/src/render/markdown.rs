//! Markdown as plain terminal text, for plans. What a person approves must be all there: HTML, comments, link targets,
//! definitions and tables are shown as written, and if any word of the source is missing from the rendering, the
//! source itself is shown instead.

use std::collections::HashMap;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::style::{Line, Style, lines_of};
use super::wrap::wrap;

/// How far code is moved in.
const CODE_INDENT: &str = "    ";

/// `source` in lines of at most `width` columns.
pub(crate) fn render(source: &str, width: usize) -> Vec<Line> {
    let rendered = Renderer::new(source, width.max(20)).run();
    let text: String = rendered.written;
    if shows_every_word(source, &text) {
        return rendered.lines;
    }
    let mut lines =
        vec![Line::styled(Style::Dim, "(as written; not everything in it would show as Markdown)")];
    lines.extend(plain(source, width));
    lines
}

/// `text` line by line, wrapped.
pub(crate) fn plain(text: &str, width: usize) -> Vec<Line> {
    lines_of(text.trim_end()).flat_map(|line| wrap(&Line::from(line), width, 0)).collect()
}

/// Whether each word of `source` is in `rendered`, as often.
fn shows_every_word(source: &str, rendered: &str) -> bool {
    let mut counts: HashMap<&str, isize> = HashMap::new();
    for word in words(rendered) {
        *counts.entry(word).or_default() += 1;
    }
    words(source).all(|word| {
        counts.get_mut(word).is_some_and(|count| {
            *count -= 1;
            *count >= 0
        })
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

struct Renderer<'a> {
    source: &'a str,
    width: usize,
    lines: Vec<Line>,
    /// All text put into lines, unwrapped, for the check that nothing is missing.
    written: String,
    line: Line,
    /// What every line of the current block begins with, by nesting.
    prefixes: Vec<Prefix>,
    styles: Vec<Style>,
    /// Links that are open: what is to be said after their text.
    links: Vec<String>,
    /// A blank line goes before the next block.
    gap: bool,
}

struct Prefix {
    /// Only before the first line: the marker of a list item.
    first: Option<String>,
    rest: String,
    style: Style,
}

impl<'a> Renderer<'a> {
    fn new(source: &'a str, width: usize) -> Self {
        Self {
            source,
            width,
            lines: Vec::new(),
            written: String::new(),
            line: Line::new(),
            prefixes: Vec::new(),
            styles: Vec::new(),
            links: Vec::new(),
            gap: false,
        }
    }

    fn run(mut self) -> Self {
        let options = Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
        let mut parser = Parser::new_ext(self.source, options).into_offset_iter();
        let mut verbatim: Option<TagEnd> = None;
        for (event, range) in parser.by_ref() {
            match (&verbatim, &event) {
                (Some(end), Event::End(tag)) if end == tag => verbatim = None,
                (Some(_), _) => {}
                (None, Event::Start(Tag::Table(_) | Tag::HtmlBlock | Tag::CodeBlock(_))) => {
                    let style = if matches!(event, Event::Start(Tag::CodeBlock(_))) {
                        Style::Code
                    } else {
                        Style::Plain
                    };
                    let Event::Start(tag) = &event else { continue };
                    verbatim = Some(tag.to_end());
                    self.verbatim(tag, range, style);
                }
                (None, _) => self.event(event, range),
            }
        }
        let mut definitions: Vec<Range<usize>> =
            parser.reference_definitions().iter().map(|(_, definition)| definition.span.clone()).collect();
        definitions.sort_by_key(|span| span.start);
        self.flush();
        for span in definitions {
            self.begin_block();
            let text = self.slice(span).trim_end().to_owned();
            self.put_lines(&text, "", Style::Dim);
        }
        self
    }

    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => {
                // An entity is shown as written: what it stands for may be invisible.
                let written = self.slice(range);
                let text = if written.starts_with('&') { written.to_owned() } else { text.into_string() };
                self.text(&text);
            }
            Event::Code(code) => {
                self.written.push_str(&code);
                self.line.push(Style::Code, &code);
            }
            Event::InlineHtml(html) | Event::Html(html) => self.literal(&html),
            Event::SoftBreak => self.literal(" "),
            Event::HardBreak => self.flush(),
            Event::Rule => {
                self.begin_block();
                self.line.push(Style::Dim, "────────");
                self.flush();
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.literal(if done { "[x] " } else { "[ ] " }),
            // Only with options that are off.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.literal(&text)
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.styles.push(Style::Bold);
                self.line.push(Style::Bold, &format!("{} ", "#".repeat(level as usize)));
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.prefixes.push(Prefix { first: None, rest: "> ".to_owned(), style: Style::Dim });
            }
            Tag::List(_) => {
                if !self.line.is_empty() {
                    self.flush();
                    self.gap = false;
                } else if self.prefixes.is_empty() {
                    self.begin_block();
                }
            }
            Tag::Item => {
                self.flush();
                let marker = self.marker(range);
                self.written.push_str(&marker);
                self.prefixes.push(Prefix {
                    rest: " ".repeat(marker.chars().count()),
                    first: Some(marker),
                    style: Style::Plain,
                });
            }
            Tag::Emphasis => self.styles.push(Style::Italic),
            Tag::Strong => self.styles.push(Style::Bold),
            Tag::Link { link_type, dest_url, title, id } => self.open_link(link_type, &dest_url, &title, &id),
            Tag::Image { link_type, dest_url, title, id } => {
                self.literal("image: ");
                self.open_link(link_type, &dest_url, &title, &id);
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.flush();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.prefixes.pop();
                self.gap = true;
            }
            TagEnd::List(_) if self.prefixes.is_empty() => self.gap = true,
            TagEnd::Item => {
                // An empty item still has its marker.
                if self.line.is_empty() && self.prefixes.last().is_some_and(|prefix| prefix.first.is_some()) {
                    self.line.push(Style::Plain, " ");
                }
                self.flush();
                self.prefixes.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                if let Some(after) = self.links.pop() {
                    self.written.push_str(&after);
                    self.line.push(Style::Code, &after);
                }
            }
            _ => {}
        }
    }

    /// The marker as the author wrote it: a list of `1. 1. 1.` is not renumbered.
    fn marker(&self, range: Range<usize>) -> String {
        let marker: String = self.slice(range).chars().take_while(|c| !c.is_whitespace()).take(12).collect();
        let ordered = marker.starts_with(|c: char| c.is_ascii_digit());
        if ordered { format!("{marker} ") } else { "• ".to_owned() }
    }

    fn open_link(&mut self, link_type: LinkType, dest: &str, title: &str, id: &str) {
        let mut after = match link_type {
            LinkType::Autolink | LinkType::Email => String::new(),
            LinkType::Reference | LinkType::ReferenceUnknown => format!(" [{id}] ({dest})"),
            _ => format!(" ({dest})"),
        };
        if !title.is_empty() {
            after.push_str(&format!(" \"{title}\""));
        }
        self.links.push(after);
    }

    fn text(&mut self, text: &str) {
        self.written.push_str(text);
        let style = self.styles.last().copied().unwrap_or_default();
        for (index, line) in lines_of(text).enumerate() {
            if index > 0 {
                self.flush();
            }
            self.line.push(style, &line);
        }
    }

    fn literal(&mut self, text: &str) {
        self.text(text);
    }

    /// A block shown as it is written, moved in.
    fn verbatim(&mut self, tag: &Tag<'_>, range: Range<usize>, style: Style) {
        self.begin_block();
        let source = self.slice(range).to_owned();
        let indented = matches!(tag, Tag::CodeBlock(CodeBlockKind::Indented));
        let mut text = source.trim_end().to_owned();
        if matches!(tag, Tag::CodeBlock(CodeBlockKind::Fenced(_))) {
            text = without_fence(&text);
        }
        // Inside a list the source carries the list's own indentation.
        let depth: usize = self.prefixes.iter().map(|prefix| prefix.rest.len()).sum();
        let depth = if indented { depth + CODE_INDENT.len() } else { depth };
        let text: Vec<&str> = text.split('\n').map(|line| unindented(line, depth)).collect();
        self.put_lines(&text.join("\n"), CODE_INDENT, style);
        self.gap = true;
    }

    fn put_lines(&mut self, text: &str, indent: &str, style: Style) {
        for line in lines_of(text) {
            self.written.push_str(&line);
            self.written.push('\n');
            self.line.push(style, &format!("{indent}{line}"));
            // An empty line of code is a line too.
            if self.line.is_empty() {
                self.line.push(style, " ");
            }
            self.flush();
        }
    }

    fn begin_block(&mut self) {
        self.flush();
        if self.gap && !self.lines.is_empty() {
            self.lines.push(Line::new());
        }
        self.gap = false;
    }

    /// Ends the current line and lays it out behind its prefixes.
    fn flush(&mut self) {
        self.written.push('\n');
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return;
        }
        let columns: usize = self.prefixes.iter().map(|prefix| prefix.rest.chars().count()).sum();
        let width = self.width.saturating_sub(columns).max(8);
        let hang = if line.text().starts_with(CODE_INDENT) { CODE_INDENT.len() } else { 0 };
        for line in wrap(&line, width, hang) {
            let mut prefix = Line::new();
            for part in &mut self.prefixes {
                match part.first.take() {
                    Some(first) => prefix.push(part.style, &first),
                    None => prefix.push(part.style, &part.rest),
                }
            }
            self.lines.push(line.behind(&prefix));
        }
    }

    fn slice(&self, range: Range<usize>) -> &'a str {
        self.source.get(range).unwrap_or_default()
    }
}

/// A fenced block without its fence lines; what the opening fence says stays.
fn without_fence(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let fence = |line: &str| {
        let line = line.trim_start();
        line.starts_with("```") || line.starts_with("~~~")
    };
    if lines.len() > 1 && lines.last().is_some_and(|line| fence(line.trim_start_matches(['>', ' ']))) {
        lines.pop();
    }
    let info =
        lines.first().map(|line| line.trim_start().trim_start_matches(['`', '~']).trim()).unwrap_or_default();
    let info = info.to_owned();
    if !lines.is_empty() {
        lines.remove(0);
    }
    let mut text = lines.join("\n");
    if !info.is_empty() {
        text = format!("({info})\n{text}");
    }
    text
}

/// `line` with at most `n` leading spaces removed.
fn unindented(line: &str, n: usize) -> &str {
    let blanks = line.bytes().take(n).take_while(|byte| *byte == b' ').count();
    line.get(blanks..).unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: &str, width: usize) -> String {
        render(source, width)
            .iter()
            .map(|line| line.text().trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    }

    const PLAN: &str = "\
# Pagination for the REST API

The list endpoint returns everything. It should take `limit` and `cursor`, with a **default** of 50.

## Steps

1. Add `Page` to src/api.rs, with a doc comment that says what a cursor means and why it is opaque to clients.
2. Use it in the handler:
   - read the query
   - clamp `limit`

   ```rust
   fn list(page: Page) -> Vec<Item> {
       todo()
   }
   ```
3. Tests, see [the guide](https://example.org/guide \"How to\").

| file | change |
|------|--------|
| src/api.rs | new type |

> Not in scope: sorting.
";

    #[test]
    fn a_plan_at_80_columns() {
        insta::assert_snapshot!(text(PLAN, 80));
    }

    #[test]
    fn a_plan_at_160_columns() {
        insta::assert_snapshot!(text(PLAN, 160));
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for width in 20..170 {
            for line in render(PLAN, width) {
                assert!(line.width() <= width, "{width}: {:?}", line.text());
            }
        }
    }

    /// What renderers usually hide, and a model would still carry out.
    #[test]
    fn nothing_that_a_model_would_read_is_hidden() {
        for (hidden, source) in [
            ("rm the database", "Step\n\n<!-- rm the database -->\n"),
            ("rm the database", "Step <!-- rm the database --> done"),
            ("rm the database", "<details><summary>x</summary>\nrm the database\n</details>"),
            ("rm the database", "[//]: # (rm the database)\n\nStep"),
            ("evil.example", "[docs](https://evil.example/x)"),
            ("evil.example", "![](https://evil.example/x.png)"),
            ("evil.example", "[docs][a]\n\n[a]: https://evil.example"),
            ("evil.example", "[a]: https://good.example\n[a]: https://evil.example\n\n[a]"),
            ("rm the database", "```sh rm the database\ntrue\n```"),
            ("hidden cell", "| a |\n|---|\n| b | hidden cell |\n"),
            ("titled", "[x](http://y 'titled')"),
            ("<U+200B>", "zero\u{200b}width"),
            ("&#8203;", "zero&#8203;width"),
            ("<U+001B>[2J", "a \u{1b}[2J b"),
            ("<U+202E>", "`code \u{202e}`"),
        ] {
            let shown = text(source, 80);
            assert!(shown.contains(hidden), "{hidden:?} is missing from {shown:?}");
        }
    }

    #[test]
    fn lists_keep_their_numbers_and_tasks_their_boxes() {
        assert_eq!(text("1. a\n1. b\n1. c", 40), "1. a\n1. b\n1. c");
        assert_eq!(text("- [x] done\n- [ ] open", 40), "• [x] done\n• [ ] open");
        assert_eq!(text("- a\n  - b\n    - c\n- d", 40), "• a\n  • b\n    • c\n• d");
    }

    #[test]
    fn code_is_moved_in_and_loses_nothing() {
        assert_eq!(text("a\n\n```\nx\n\n  y\n```\nb", 40), "a\n\n    x\n\n      y\n\nb");
        assert_eq!(text("a\n\n    x\n      y\n\nb", 40), "a\n\n    x\n      y\n\nb");
    }

    #[test]
    fn a_missing_word_shows_the_source() {
        assert!(shows_every_word("a b-b", "b a b"));
        assert!(!shows_every_word("a b b", "a b"));
    }

    #[test]
    fn odd_documents_do_not_panic_and_hide_nothing() {
        for source in [
            "", "\n\n", "- ", "1.", "> > >", "```", "* * *", "|", "[", "<", "#", "- - - a", "\u{0}", "&",
            "a\\",
        ] {
            let shown = text(source, 20);
            assert!(shows_every_word(source, &shown), "{source:?} → {shown:?}");
        }
    }
}
