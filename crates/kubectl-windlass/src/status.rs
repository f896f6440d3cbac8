//! `status`: follows rollouts to their end.

mod feeds;
mod follower;
mod github;
mod json;
mod lines;
mod screen;
pub mod tree;
mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::Api;
use crate::cli::{Format, GlobalArgs, ListArgs, ListFormat, StatusArgs};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::explain;
use crate::invocation::Invocation;
use crate::list;
use crate::output::Output;
use crate::owners;
use crate::target::{self, WorkloadKey};
use crate::text::json as json_line;
use feeds::Feeds;
use follower::{Follower, Message};
use github::GitHub;
use verdicts::End;

/// How often changes are assessed, and how long a change waits at most.
const TICK: Duration = Duration::from_millis(250);

/// How the state of the rollouts is shown.
enum View {
    /// A line for each change.
    Lines(Vec<lines::Lines>),
    /// A JSON object for each change.
    Json(Vec<json::Stream>),
    /// A live tree.
    Screen(screen::Screen),
}

/// Runs `status`.
///
/// # Errors
/// When an object cannot be found or read, or the terminal cannot be used.
pub async fn run(global: &GlobalArgs, args: StatusArgs, output: &mut Output) -> Result<Exit, CommandError> {
    if args.objects.are_none() {
        let format = (args.output == Format::Json).then_some(ListFormat::Json);
        let follows = args.watch && !args.plain;
        return list::run(global, ListArgs::of(&args.objects, format, follows), output).await;
    }
    let targets = target::targets(&args.objects)?;
    let connection = connect(global, &|name| std::env::var(name).ok()).await?;
    let api = Arc::new(Api::new(connection, global.request_timeout));
    let (targets, notes) = owners::follow(&api, targets).await?;
    notes.iter().for_each(|note| output.note(&format!("note: {note}")));
    let (sender, messages) = mpsc::channel(1024);
    let (mut followers, feeds) = match targets.is_empty() {
        true => followers_of_all(&args, &api, &sender).await?,
        false => {
            let keys = target::workloads(&api, &targets, &args.objects, |_| None).await?;
            (followers_of_each(keys, &args, &api, &sender), None)
        }
    };
    let mut sources = Sources { messages, feeds, sender, api };
    let mut view = match args.output {
        Format::Json => View::Json(followers.iter().map(|_| json::Stream::default()).collect()),
        Format::Text if output.is_interactive && args.watch && !args.plain => {
            View::Screen(screen::Screen::open(output.style)?)
        }
        Format::Text => View::Lines(followers.iter().map(|_| lines::Lines::default()).collect()),
    };
    let ended = follow(&args, &mut sources, &mut followers, &mut view, output).await;
    if let View::Screen(screen) = view {
        let last = screen.close();
        output.text(&last)?;
        for follower in &followers {
            if let Some((end, assessment)) = follower.ended() {
                output.line(&lines::end(end, assessment, &follower.label()))?;
            }
        }
    }
    if args.output == Format::Text {
        let commands = Invocation::of_process().commands();
        for (end, assessment) in followers.iter().filter_map(Follower::ended) {
            if let (End::Failed(_), Some(command)) = (end, explain::advice(assessment, &commands)) {
                output.note(&format!("try: {command}"));
            }
        }
    }
    if let Some(github) = GitHub::find(&args, &|name| std::env::var(name).ok()) {
        let ends: Vec<_> = followers.iter().filter_map(Follower::ended).collect();
        github.report(&ends, output)?;
    }
    ended
}

/// Where changes come from.
struct Sources {
    messages: mpsc::Receiver<Message>,
    /// The watches that the followers share, if they do.
    feeds: Option<Feeds>,
    sender: mpsc::Sender<Message>,
    api: Arc<Api>,
}

/// Fewer followers than this watch what concerns them alone.
const FEW: usize = 4;

/// Follows all workloads that a selector or `-A` chooses.
async fn followers_of_all(
    args: &StatusArgs,
    api: &Arc<Api>,
    sender: &mpsc::Sender<Message>,
) -> Result<(Vec<Follower>, Option<Feeds>), CommandError> {
    let (kind, listed) = target::listed(api, &args.objects, |_| None).await?;
    let keys: Vec<WorkloadKey> = listed.items.iter().map(|object| WorkloadKey::of(kind, object)).collect();
    if keys.len() < FEW {
        return Ok((followers_of_each(keys, args, api, sender), None));
    }
    let new = |(index, key)| Follower::new(index, key, args.watch, true);
    let mut followers: Vec<Follower> = keys.into_iter().enumerate().map(new).collect();
    let labels = args.objects.selector.as_deref().unwrap_or_default();
    let scope = (kind, target::scope(api, &args.objects), labels);
    let feeds = Feeds::start(scope, listed, &mut followers, args.watch, api, sender)?;
    Ok((followers, Some(feeds)))
}

/// Follows each of these by watches of its own.
fn followers_of_each(
    keys: Vec<WorkloadKey>,
    args: &StatusArgs,
    api: &Arc<Api>,
    sender: &mpsc::Sender<Message>,
) -> Vec<Follower> {
    let new = |(index, key)| Follower::new(index, key, args.watch, false);
    let followers: Vec<Follower> = keys.into_iter().enumerate().map(new).collect();
    followers.iter().for_each(|follower| follower.start(api, sender));
    followers
}

async fn follow(
    args: &StatusArgs,
    sources: &mut Sources,
    followers: &mut [Follower],
    view: &mut View,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            Some(message) = sources.messages.recv() => {
                receive(followers, message, sources).await?;
                while let Ok(message) = sources.messages.try_recv() {
                    receive(followers, message, sources).await?;
                }
                // Assessed together with those that follow soon.
                continue;
            }
            _ = ticks.tick() => {}
            () = screen::quit(view) => return Ok(Exit::Interrupted),
        }
        let timed_out = !args.timeout.is_zero() && started.elapsed() >= args.timeout;
        let mut has_failed = false;
        // An end is told with the events that explain it.
        let is_settled = args.watch || sources.feeds.as_ref().is_none_or(Feeds::is_settled);
        for follower in followers.iter_mut().filter(|follower| follower.ended().is_none()) {
            if !follower.is_due() && !timed_out {
                continue;
            }
            if !follower.assess(&sources.api, &sources.sender, !args.watch && !timed_out)? {
                if timed_out {
                    let what = format!("cannot read {} within --timeout", follower.key.described());
                    let message = follower.trouble().unwrap_or("no answer").to_owned();
                    return Err(crate::api::ApiError::Unanswered { what, message }.into());
                }
                continue;
            }
            if is_settled || timed_out {
                follower.judge(args, timed_out);
            }
            has_failed |= matches!(follower.ended(), Some((End::Failed(_), _)));
        }
        if let Some(feeds) = &mut sources.feeds {
            feeds.ask_for_events(followers, &sources.api, &sources.sender);
        }
        show(args, followers, view, output)?;
        let is_over = |follower: &Follower| follower.ended().is_some();
        // Without a watch nobody waits for the others, and all of them are shown.
        if followers.iter().all(is_over) || has_failed && args.watch {
            let exits = followers.iter().filter_map(|follower| Some(follower.ended()?.0.exit()));
            return Ok(exits.fold(Exit::Success, Exit::worse));
        }
    }
}

async fn receive(
    followers: &mut [Follower],
    message: Message,
    sources: &mut Sources,
) -> Result<(), CommandError> {
    let messages = match (&mut sources.feeds, message.follower) {
        (Some(feeds), None) => feeds.route(message.news, followers),
        _ => vec![message],
    };
    for message in messages {
        let Some(follower) = message.follower.and_then(|index| followers.get_mut(index)) else { continue };
        if !follower.receive(message, &sources.api, &sources.sender)? {
            return Err(follower.key.missing(&sources.api).await);
        }
    }
    Ok(())
}

fn show(
    args: &StatusArgs,
    followers: &mut [Follower],
    view: &mut View,
    output: &mut Output,
) -> Result<(), CommandError> {
    let is_news: Vec<bool> = followers.iter_mut().map(Follower::take_news).collect();
    match view {
        View::Lines(all) => {
            for ((lines, follower), is_news) in all.iter_mut().zip(followers).zip(is_news) {
                if let Some(trouble) = follower.new_trouble() {
                    output.note(&format!("note: {trouble}; the watch tries again"));
                }
                if !is_news {
                    continue;
                }
                note_unreadable(follower, output);
                let Some(assessment) = follower.assessment() else { continue };
                let is_first = lines.is_first();
                if !args.watch {
                    if is_first {
                        output.text(&tree::text(assessment, output.style, output.width))?;
                    }
                    if let Some((End::Failed(why), _)) = follower.ended() {
                        output.note(&format!("{} failed: {why}", follower.label()));
                    }
                    continue;
                }
                for line in lines.update(assessment, follower.ended().map(|(end, _)| end), &follower.label())
                {
                    output.line(&line)?;
                }
            }
        }
        View::Json(all) => {
            for ((stream, follower), is_news) in all.iter_mut().zip(followers).zip(is_news) {
                if let Some(trouble) = follower.new_trouble() {
                    output.note(&format!("note: {trouble}; the watch tries again"));
                }
                if !is_news {
                    continue;
                }
                note_unreadable(follower, output);
                let Some(assessment) = follower.assessment() else { continue };
                for event in stream.update(assessment, follower.ended().map(|(end, _)| end)) {
                    output.line(&json_line(&event))?;
                }
            }
        }
        View::Screen(screen) => screen.draw(followers, is_news.contains(&true))?,
    }
    Ok(())
}

/// Says what could not be read before anything that is known without it.
fn note_unreadable(follower: &mut Follower, output: &mut Output) {
    let consequence = match follower.assessment() {
        Some(assessment) if assessment.is_partial => "no reasons can be told, only what the status says",
        _ => "the reasons are incomplete",
    };
    for missing in follower.new_unreadable() {
        output.note(&format!("note: {missing}: {consequence}"));
    }
}
