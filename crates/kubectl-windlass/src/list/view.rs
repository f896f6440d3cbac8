//! The list in a terminal: what is chosen, what is filtered, and the lines that a screen has room for. Pure.

use windlass_terminal::layout::{Row, Tone, cut_row, folded, indented};
use windlass_terminal::screen::Key;

use super::table::{self, Look, Table};
use crate::rollout::Assessment;
use crate::rollout::headline::headline;
use crate::rollout::verdict::Severity;
use crate::target::WorkloadKey;

/// The wish behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing, or what the next frame shows.
    Nothing,
    /// To read the explanation of this workload, or the list again.
    Read,
    /// To leave.
    Leave,
    /// To end at once.
    Interrupt,
}

/// A workload that is explained.
struct Explained {
    key: WorkloadKey,
    /// `None` until it is read.
    text: Option<String>,
    top: usize,
}

/// The list, and what the user has made of it.
pub struct View {
    look: Look,
    workloads: Vec<Assessment>,
    notes: Vec<String>,
    /// Why the last read has failed.
    trouble: Option<String>,
    filter: String,
    is_typing: bool,
    chosen: Option<WorkloadKey>,
    /// The first line of the table that is shown.
    top: usize,
    explained: Option<Explained>,
}

/// A frame.
pub struct Frame {
    /// The lines, at most as many as the screen has.
    pub rows: Vec<Row>,
    /// Those of the workload that is chosen.
    pub chosen: std::ops::Range<usize>,
}

fn key(of: &Assessment) -> WorkloadKey {
    WorkloadKey { kind: of.kind, namespace: of.namespace.clone(), name: of.name.clone() }
}

impl View {
    /// A view without workloads.
    pub fn new(look: Look) -> Self {
        View {
            look,
            workloads: Vec::new(),
            notes: Vec::new(),
            trouble: None,
            filter: String::new(),
            is_typing: false,
            chosen: None,
            top: 0,
            explained: None,
        }
    }

    /// Takes a newer list in.
    pub fn list(&mut self, workloads: Vec<Assessment>, notes: Vec<String>) {
        (self.workloads, self.notes, self.trouble) = (workloads, notes, None);
    }

    /// Takes the explanation of a workload in, unless the user has left it.
    pub fn explain(&mut self, of: &WorkloadKey, text: String) {
        if let Some(explained) = self.explained.as_mut().filter(|explained| explained.key == *of) {
            explained.text = Some(text);
        }
        self.trouble = None;
    }

    /// Says why something could not be read. What was read before stays.
    pub fn fail(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// The workload to explain, instead of the list.
    pub fn explains(&self) -> Option<&WorkloadKey> {
        self.explained.as_ref().map(|explained| &explained.key)
    }

    /// The workloads that have lines: those that are not at rest, or all that the filter fits.
    fn shown(&self) -> Vec<&Assessment> {
        let filter = self.filter.to_lowercase();
        let fits = |it: &&Assessment| {
            let text = [&it.namespace, "/", &it.argument(), " ", it.verdict.word(), " "].concat();
            let text = text + &headline(it).unwrap_or_default();
            text.to_lowercase().contains(&filter)
        };
        let is_meant = |it: &&Assessment| match filter.is_empty() {
            true => self.look.shows_all || it.verdict.severity() != Severity::AtRest,
            false => fits(it),
        };
        self.workloads.iter().filter(is_meant).collect()
    }

    /// Takes a key; `height` is that of the screen.
    pub fn press(&mut self, pressed: Key, height: usize) -> Wish {
        let page = height.saturating_sub(3).max(1);
        match (pressed, self.is_typing, &mut self.explained) {
            (Key::Interrupt, ..) => return Wish::Interrupt,
            (Key::Char(c), true, _) => self.filter.push(c),
            (Key::Backspace, true, _) => drop(self.filter.pop()),
            (Key::Enter, true, _) => self.is_typing = false,
            (Key::Escape, true, _) => (self.is_typing, self.filter) = (false, String::new()),
            (Key::Char('q'), _, None) => return Wish::Leave,
            (Key::Char('q') | Key::Escape | Key::Backspace, _, Some(_)) => {
                self.explained = None;
                return Wish::Read;
            }
            // The frame knows how many lines there are.
            (moved, _, Some(explained)) => {
                explained.top = match moved {
                    Key::Up | Key::Char('k') => explained.top.saturating_sub(1),
                    Key::Down | Key::Char('j') => explained.top.saturating_add(1),
                    Key::PageUp => explained.top.saturating_sub(page),
                    Key::PageDown | Key::Char(' ') => explained.top.saturating_add(page),
                    Key::Home => 0,
                    Key::End => usize::MAX,
                    _ => explained.top,
                };
            }
            (Key::Escape, false, None) => self.filter.clear(),
            (Key::Char('/'), false, None) => self.is_typing = true,
            (Key::Char('a'), false, None) => self.look.shows_all = !self.look.shows_all,
            (Key::Enter, false, None) => {
                let Some(chosen) = self.chosen.clone() else { return Wish::Nothing };
                self.explained = Some(Explained { key: chosen, text: None, top: 0 });
                return Wish::Read;
            }
            (moved, _, None) => self.choose(moved, page),
        }
        Wish::Nothing
    }

    fn choose(&mut self, moved: Key, page: usize) {
        let keys: Vec<WorkloadKey> = self.shown().into_iter().map(key).collect();
        let at =
            self.chosen.as_ref().and_then(|chosen| keys.iter().position(|key| key == chosen)).unwrap_or(0);
        let last = keys.len().saturating_sub(1);
        let at = match moved {
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => at.saturating_add(1),
            Key::PageUp => at.saturating_sub(page),
            Key::PageDown | Key::Char(' ') => at.saturating_add(page),
            Key::Home => 0,
            Key::End => last,
            _ => at,
        };
        self.chosen = keys.into_iter().nth(at.min(last));
    }

    /// The next frame.
    pub fn frame(&mut self, width: usize, height: usize) -> Frame {
        let bad = |text: &String| indented(text, Tone::Bad, "", width);
        let mut rows: Vec<Row> = self.trouble.iter().chain(&self.notes).flat_map(bad).collect();
        rows.truncate(height.saturating_sub(2) / 3);
        let room = height.saturating_sub(rows.len() + 1);
        let (more, chosen) = match self.explained.is_some() {
            true => (self.explanation(width, room), 0..0),
            false => self.table(width, room),
        };
        let chosen = chosen.start + rows.len()..chosen.end + rows.len();
        rows.extend(more);
        rows.resize(height.saturating_sub(1), Row::new());
        rows.push(vec![(self.foot(), Tone::Plain)]);
        Frame { rows: rows.into_iter().map(|row| cut_row(row, width)).collect(), chosen }
    }

    fn foot(&self) -> String {
        match (&self.explained, self.is_typing) {
            (Some(_), _) => "q: back to the list  ↑ ↓: scroll".to_owned(),
            (None, true) => format!("/{}_", self.filter),
            (None, false) => {
                let filtered = match self.filter.is_empty() {
                    true => String::new(),
                    false => format!("/{}  Escape: no filter  ", self.filter),
                };
                let all = if self.look.shows_all { "only what is unfinished" } else { "all" };
                format!("{filtered}q: leave  ↑ ↓: choose  Enter: explain  /: filter  a: {all}")
            }
        }
    }

    fn explanation(&mut self, width: usize, room: usize) -> Vec<Row> {
        let Some(explained) = &mut self.explained else { return Vec::new() };
        let text = match &explained.text {
            Some(text) => text.clone(),
            None => format!("reading {}…", explained.key.described()),
        };
        let lines: Vec<String> = text.lines().flat_map(|line| folded(line, width)).collect();
        explained.top = explained.top.min(lines.len().saturating_sub(room));
        let shown = lines.into_iter().skip(explained.top).take(room);
        shown.map(|line| vec![(line, Tone::Plain)]).collect()
    }

    /// The lines of the table, and which of them are those of the workload that is chosen. It stays on the screen.
    fn table(&mut self, width: usize, room: usize) -> (Vec<Row>, std::ops::Range<usize>) {
        let shown = self.shown();
        if shown.is_empty() {
            let text = match (self.workloads.is_empty(), self.filter.is_empty()) {
                (true, _) => "no workload was found".to_owned(),
                (false, true) => "nothing is unfinished".to_owned(),
                (false, false) => format!("nothing has {:?} in its name, state or reason", self.filter),
            };
            let rest = table::at_rest(&self.workloads, &self.look).unwrap_or_default();
            (self.top, self.chosen) = (0, None);
            return ([text, rest].map(|line| vec![(line, Tone::Plain)]).into(), 0..0);
        }
        let keys: Vec<WorkloadKey> = shown.iter().copied().map(key).collect();
        let look = Look { width: Some(width), ..self.look };
        let Table { head, workloads } = table::table(&shown, &look);
        let at =
            self.chosen.as_ref().and_then(|chosen| keys.iter().position(|key| key == chosen)).unwrap_or(0);
        let rest = table::at_rest(&self.workloads, &self.look).filter(|_| self.filter.is_empty());
        let start: usize = workloads.iter().take(at).map(Vec::len).sum();
        let end = start + workloads.get(at).map_or(0, Vec::len);
        let lines: Vec<Row> =
            workloads.into_iter().flatten().chain(rest.map(|rest| vec![(rest, Tone::Plain)])).collect();
        let room = room.saturating_sub(1);
        // The first line of the chosen one counts more than its last.
        let top = self.top.max(end.saturating_sub(room)).min(start).min(lines.len().saturating_sub(room));
        let range = start.saturating_sub(top) + 1..(end.saturating_sub(top) + 1).min(room + 1);
        let rows = std::iter::once(head).chain(lines.into_iter().skip(top).take(room)).collect();
        (self.top, self.chosen) = (top, keys.into_iter().nth(at));
        (rows, range)
    }

    /// The table as it stays in the terminal once the user has left.
    pub fn last(&self, width: Option<usize>) -> String {
        table::text(&self.workloads, &Look { width, ..self.look })
    }

    /// The notes about what could not be read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[cfg(test)]
mod tests {
    use windlass_terminal::layout::{columns_of, line};

    use super::*;
    use crate::list::screens::{STYLE, cluster};

    const LINES: usize = 24;

    fn view() -> View {
        let mut workloads = cluster();
        table::worst_first(&mut workloads);
        let mut view = View::new(Look { style: STYLE, shows_namespace: true, ..Look::default() });
        view.list(workloads, Vec::new());
        view
    }

    fn lines(frame: &Frame) -> Vec<String> {
        frame.rows.iter().map(|row| line(row, false)).collect()
    }

    fn chosen(view: &mut View, height: usize) -> String {
        let frame = view.frame(80, height);
        lines(&frame)[frame.chosen.start].clone()
    }

    fn press(view: &mut View, keys: &[Key]) -> Wish {
        keys.iter().fold(Wish::Nothing, |_, key| view.press(*key, LINES))
    }

    fn typed(view: &mut View, text: &str) {
        for c in text.chars() {
            assert_eq!(view.press(Key::Char(c), LINES), Wish::Nothing);
        }
    }

    #[test]
    fn a_frame_fills_the_screen_and_no_more() {
        for (width, height) in [(20, 3), (40, 6), (80, 24), (200, 50), (0, 0), (5, 1)] {
            let mut view = view();
            view.fail("cannot reach https://10.0.0.1:6443: connection refused".to_owned());
            for keys in [&[][..], &[Key::End], &[Key::Enter]] {
                press(&mut view, keys);
                let frame = view.frame(width, height);
                assert_eq!(frame.rows.len(), height.max(1), "{width}x{height}");
                assert!(lines(&frame).iter().all(|line| columns_of(line) <= width), "{:#?}", lines(&frame));
            }
        }
    }

    #[test]
    fn the_one_that_is_chosen_stays_on_the_screen_and_chosen() {
        let mut view = view();
        // A head, two lines and the keys.
        assert!(chosen(&mut view, 4).contains("deploy/web"));
        for name in ["job/migrate", "ds/node-agent", "deploy/billing", "deploy/billing"] {
            view.press(Key::Down, 4);
            assert!(chosen(&mut view, 4).contains(name), "{name}: {:#?}", lines(&view.frame(80, 4)));
        }
        view.press(Key::Up, 4);
        let mut fewer = cluster();
        table::worst_first(&mut fewer);
        fewer.retain(|it| it.name != "web");
        view.list(fewer, Vec::new());
        assert!(chosen(&mut view, 24).contains("ds/node-agent"), "a newer list moves it up");
        press(&mut view, &[Key::Home]);
        assert!(chosen(&mut view, 24).contains("job/migrate"));
    }

    #[test]
    fn a_filter_is_about_names_states_and_reasons_and_finds_what_is_at_rest() {
        let mut view = view();
        let shown = |view: &View| view.shown().iter().map(|it| it.argument()).collect::<Vec<_>>();
        let all = shown(&view);
        press(&mut view, &[Key::Char('/')]);
        typed(&mut view, "Backoff");
        assert_eq!(shown(&view), ["deploy/web", "job/migrate", "ds/node-agent"]);
        assert!(lines(&view.frame(80, LINES)).last().unwrap().starts_with("/Backoff_"));
        // A letter that is a command elsewhere is a letter here.
        press(&mut view, &[Key::Escape, Key::Char('/'), Key::Char('q'), Key::Backspace]);
        typed(&mut view, "complete");
        assert_eq!(press(&mut view, &[Key::Enter]), Wish::Nothing);
        assert_eq!(shown(&view).len(), 2);
        assert!(view.explains().is_none());
        press(&mut view, &[Key::Escape]);
        assert_eq!(shown(&view), all);
        press(&mut view, &[Key::Char('/')]);
        typed(&mut view, "zzz");
        assert!(lines(&view.frame(80, LINES))[0].contains("nothing has \"zzz\""));
        press(&mut view, &[Key::Escape, Key::Char('a')]);
        assert_eq!(shown(&view).len(), cluster().len());
    }

    #[test]
    fn enter_explains_and_q_goes_back_and_then_leaves() {
        let mut view = view();
        view.frame(80, LINES);
        assert_eq!(press(&mut view, &[Key::Down]), Wish::Nothing);
        view.frame(80, LINES);
        assert_eq!(press(&mut view, &[Key::Enter]), Wish::Read);
        let key = view.explains().unwrap().clone();
        assert_eq!(key.described(), "job shop/migrate");
        assert!(lines(&view.frame(80, LINES))[0].contains("reading job shop/migrate"));
        let long = (0..40).map(|n| format!("line {n}\n")).collect::<String>() + &"x".repeat(100);
        view.explain(&key, long);
        assert_eq!(lines(&view.frame(80, LINES))[0], "line 0");
        press(&mut view, &[Key::End]);
        let frame = lines(&view.frame(80, LINES));
        assert_eq!((frame[21].len(), frame[22].len()), (80, 20), "{frame:#?}");
        assert_eq!(press(&mut view, &[Key::Char('q')]), Wish::Read);
        assert!(view.explains().is_none());
        // It comes too late.
        view.explain(&key, "late".to_owned());
        assert!(!lines(&view.frame(80, LINES)).concat().contains("late"));
        assert_eq!(press(&mut view, &[Key::Char('q')]), Wish::Leave);
        assert_eq!(press(&mut view, &[Key::Interrupt]), Wish::Interrupt);
    }

    #[test]
    fn what_was_read_stays_where_the_server_no_longer_answers() {
        let mut view = view();
        view.fail("cannot reach it".to_owned());
        let shown = lines(&view.frame(80, LINES));
        assert_eq!(shown[0], "cannot reach it");
        assert!(shown[2].contains("deploy/web"), "{shown:#?}");
        view.list(cluster(), vec!["cannot list pods".to_owned()]);
        assert_eq!(lines(&view.frame(80, LINES))[0], "cannot list pods");
        assert_eq!(view.notes().len(), 1);
    }
}
