use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use swiftwater::ReceivePool;

use super::wait_queue::USERS_EXAMINED_MAX;
use super::*;

fn budget(user_bytes: usize, all_bytes: usize) -> Arc<Budget> {
    Budget::new(ByteLimits { user_bytes, all_bytes })
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_message_is_charged_as_long_as_a_part_of_it_lives() {
    let account = budget(100, 1000).account(1);
    let mut charge = account.take(90).expect("room");
    charge.shrink_to(60);
    let content = charge.on(vec![7; 60]);
    let part = content.slice(3..4);
    drop(content);
    assert_eq!(account.charged_bytes(), 60);
    assert!(account.take(41).is_none());
    drop(part);
    assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
}

#[test]
fn messages_wait_in_their_order() {
    let account = budget(100, 1000).account(1);
    let first = account.take(50).expect("room");
    let _second = account.take(50).expect("room");
    let mut large = pin!(account.room(50));
    assert!(poll(large.as_mut()).is_pending());
    let mut small = pin!(account.room(1));
    assert!(poll(small.as_mut()).is_pending());
    assert!(account.take(0).is_none(), "nothing overtakes");
    drop(first);
    let Poll::Ready(Some(large)) = poll(large) else { panic!("there is room for the first") };
    assert!(poll(small.as_mut()).is_pending());
    drop(large);
    assert!(poll(small).is_ready());
}

#[test]
fn one_that_gives_up_holds_nobody_up() {
    let account = budget(100, 1000).account(1);
    let _half = account.take(50).expect("room");
    let mut small = pin!(account.room(10));
    {
        let mut large = pin!(account.room(100));
        assert!(poll(large.as_mut()).is_pending());
        assert!(poll(small.as_mut()).is_pending());
    }
    assert!(poll(small).is_ready());
    assert!(account.budget.queue().waiters.is_empty());
    assert_eq!(account.budget.waiting.load(Relaxed), 0);
}

#[test]
fn threads_that_charge_at_once_stay_within_the_limit() {
    let account = budget(100, 1000).account(1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let charge = account.take(100);
                    assert!(charge.is_none() || account.charged_bytes() == 100);
                }
            });
        }
    });
    assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
}

#[test]
fn users_who_take_what_they_can_leave_room_for_others() {
    let budget = budget(1000, 1000);
    let take_all = |user| {
        let account = budget.account(user);
        std::iter::from_fn(|| account.take(1)).collect::<Vec<_>>()
    };
    let greedy: Vec<_> = (0..3).map(take_all).collect();
    assert!(budget.charged_bytes() <= 1000);
    let modest = budget.account(9);
    assert!(modest.take(50).is_some(), "{} are charged", budget.charged_bytes());
    drop(greedy);
    assert_eq!(budget.charged_bytes(), 0);
}

#[test]
fn users_in_concert_leave_a_reserve_to_those_who_have_little() {
    const ALL_BYTES: usize = 1 << 20;
    let budget = budget(ALL_BYTES, ALL_BYTES);
    let little = ALL_BYTES / LITTLE_PART;
    let take_all = |user| {
        let account = budget.account(user);
        std::iter::from_fn(|| account.take(little + 1)).collect::<Vec<_>>()
    };
    let _greedy: Vec<_> = (0..100).map(take_all).collect();
    let unreserved = ALL_BYTES - ALL_BYTES / RESERVED_PART;
    assert!(budget.charged_bytes() <= unreserved, "{} are charged", budget.charged_bytes());
    assert!(budget.charged_bytes() > unreserved - 2 * little, "the unreserved part is used");
    let modest = budget.account(1000);
    let _some = modest.take(little).expect("the reserve");
    assert!(modest.take(1).is_none(), "the reserve is for small charges");
}

#[test]
fn memory_that_one_user_gives_back_goes_to_others_who_wait() {
    let budget = budget(1000, 1000);
    let (first, second) = (budget.account(1), budget.account(2));
    let held = first.take(500).expect("room");
    let mut waits = pin!(second.room(600));
    assert!(poll(waits.as_mut()).is_pending());
    drop(held);
    assert!(poll(waits).is_ready());
}

#[test]
fn a_message_is_granted_exactly_the_room_that_it_needs() {
    let account = budget(100, 1000).account(1);
    let mut held = account.take(60).expect("room");
    let Poll::Ready(_rest) = poll(pin!(account.room(40))) else { panic!("it fits") };
    let mut waits = pin!(account.room(1));
    assert!(poll(waits.as_mut()).is_pending());
    held.shrink_to(60);
    assert!(poll(waits.as_mut()).is_pending(), "nothing was released");
    held.shrink_to(59);
    assert!(poll(waits).is_ready());
}

#[test]
fn released_memory_goes_first_to_its_user_and_then_to_others_in_turn() {
    let budget = budget(1000, 1000);
    let [first, second, third] = [1, 2, 3].map(|user| budget.account(user));
    let held = first.take(700).expect("room");
    // There is room for one of them at a time.
    let [mut of_second, mut of_third, mut of_first] =
        [&second, &third, &first].map(|account| Box::pin(account.room(400)));
    assert!(
        [&mut of_second, &mut of_third, &mut of_first].map(|room| poll(room.as_mut()).is_pending())
            == [true; 3]
    );
    drop(held);
    let Poll::Ready(own) = poll(of_first.as_mut()) else { panic!("the memory was this user's") };
    assert!(poll(of_second.as_mut()).is_pending() && poll(of_third.as_mut()).is_pending());
    drop(own);
    let Poll::Ready(next) = poll(of_second.as_mut()) else { panic!("it has waited longest") };
    assert!(poll(of_third.as_mut()).is_pending());
    drop(next);
    assert!(poll(of_third.as_mut()).is_ready());
}

#[test]
fn the_messages_of_one_user_are_granted_up_to_the_first_that_does_not_fit() {
    let budget = budget(1000, 1000);
    let (first, second) = (budget.account(1), budget.account(2));
    let (held, crumb) = (first.charge_anyway(727), first.charge_anyway(20));
    let mut waiting = [5, 5, 600, 1].map(|bytes| Box::pin(second.room(bytes)));
    assert!(waiting.iter_mut().all(|room| poll(room.as_mut()).is_pending()));
    drop(crumb);
    // Polled again, a future that was ready would panic.
    let [one, other, large, behind] = &mut waiting;
    let granted = [one, other].map(|room| poll(room.as_mut()));
    assert!(granted.iter().all(Poll::is_ready));
    assert!(poll(large.as_mut()).is_pending() && poll(behind.as_mut()).is_pending());
    assert_eq!(budget.queue().waiters.users(), 1, "the user keeps one turn");
    drop(held);
    assert!(poll(large.as_mut()).is_ready() && poll(behind.as_mut()).is_ready());
    assert!(budget.queue().waiters.is_empty());
    assert_eq!((budget.waiting.load(Relaxed), second.waiting.load(Relaxed)), (0, 0));
}

#[test]
fn a_release_looks_at_so_many_users_and_the_next_one_at_those_behind_them() {
    for in_vain in [USERS_EXAMINED_MAX - 1, USERS_EXAMINED_MAX] {
        let budget = budget(1000, 1000);
        let first = budget.account(1);
        let _held = first.charge_anyway(727);
        let mut crumbs = [10, 10].map(|bytes| first.charge_anyway(bytes)).into_iter();
        let wait = |(user, bytes)| {
            let account = budget.account(user);
            let mut room = Box::pin(async move { account.room(bytes).await });
            assert!(poll(room.as_mut()).is_pending());
            room
        };
        let _large: Vec<_> = (0..in_vain as u32).map(|n| wait((10 + n, 600))).collect();
        let mut small = wait((2, 10));
        // Those that joined have looked round, too.
        while budget.queue().waiters.next_user() != Some(2) {}
        drop(crumbs.next());
        assert_eq!(poll(small.as_mut()).is_ready(), in_vain < USERS_EXAMINED_MAX);
        if in_vain == USERS_EXAMINED_MAX {
            drop(crumbs.next());
            assert!(poll(small.as_mut()).is_ready());
        }
    }
}

#[test]
fn one_user_at_its_limit_costs_another_nothing() {
    let budget = budget(100, 1000);
    let (first, second) = (budget.account(1), budget.account(2));
    let _all = first.take(100).expect("room");
    let mut waits = pin!(first.room(1));
    assert!(poll(waits.as_mut()).is_pending());
    assert!(second.take(100).is_some());
}

#[test]
fn the_longest_message_fits_when_nothing_else_is_there() {
    // A part of the limit is reserved for users with small charges.
    for (user_bytes, all_bytes) in [(3000, 10_000), (10_000, 4000)] {
        let account = budget(user_bytes, all_bytes).account(1);
        assert_eq!(account.message_bytes_max(), 3000 - RECORD_COST_BYTES);
        assert!(account.take(3000).is_some() && account.take(3001).is_none());
    }
    assert_eq!(budget(100, 100).account(1).message_bytes_max(), 0);
}

#[test]
fn the_associations_of_a_user_share_its_memory() {
    let account = budget(1000, 10_000).account(1);
    let pool: &dyn ReceiveBudget = &*account;
    assert_eq!((pool.free_bytes(false), pool.free_bytes(true)), (750, 1000));
    assert!(pool.take(750, false) && !pool.take(1, false));
    assert!(pool.take(200, true), "the reserve");
    let waits = account.charge_anyway(100);
    assert_eq!((account.charged_bytes(), pool.free_bytes(true)), (1050, 0));
    pool.release(950);
    drop(waits);
    assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
}

#[test]
fn blocks_of_short_messages_count_with_other_messages_and_a_quarter_is_for_little_ones() {
    let account = budget(1000, 10_000).account(1);
    let pool: &dyn SendBudget = &*account;
    let message = account.take(300).expect("room");
    assert_eq!(pool.free_bytes(), 450);
    pool.charge(800);
    assert_eq!((account.charged_bytes(), pool.free_bytes()), (1100, 0));
    assert!(account.take(1).is_none(), "programs wait for what peers have not acknowledged");
    pool.release(800);
    drop(message);
    assert_eq!((account.charged_bytes(), account.budget.charged_bytes()), (0, 0));
}

#[test]
fn the_receive_memory_of_all_users_bounds_that_of_each() {
    let budget = budget(1000, 1000);
    let (first, second) = (budget.account(1), budget.account(2));
    let all_of = |account: &Account| -> usize {
        std::iter::repeat_with(|| ReceiveBudget::take(account, 1, false)).take_while(|taken| *taken).count()
    };
    let (most, rest) = (all_of(&first), all_of(&second));
    assert!(rest > 0 && most + rest <= 750, "{most} and {rest}");
}

#[test]
fn what_modules_make_waits_for_the_user_and_while_little_is_left_for_all_users() {
    let budget = budget(1000, 4000);
    let (first, second) = (budget.account(1), budget.account(2));
    let pool = ReceivePool::new(Arc::<Account>::clone(&first));
    assert!(pool.take_made(700) && !pool.take_made(100), "a quarter is for associations that hold little");
    let told = Arc::new(AtomicUsize::new(0));
    let tell = Arc::clone(&told);
    let notify: Arc<Notified> = Arc::new(move || tell.store(tell.load(SeqCst) + 1, SeqCst));
    let wait = || pool.when_released(Arc::downgrade(&notify));
    wait();
    drop(second.take(100));
    assert_eq!(told.load(SeqCst), 0, "the memory of another user");
    drop(first.take(100));
    drop(first.take(100));
    assert_eq!(told.load(SeqCst), 1, "each is told once");
    wait();
    let _much = second.charge_anyway(2000);
    drop(second.charge_anyway(10));
    assert_eq!(told.load(SeqCst), 2, "it was the memory of all");
    pool.release_made(700);
    assert_eq!(first.charged_bytes(), 0);
}

#[test]
fn an_account_is_forgotten_with_the_last_that_is_charged_to_it() {
    let budget = budget(100, 1000);
    let charge = budget.account(1).take(10).expect("room");
    assert_eq!(budget.account(1).charged_bytes(), 10);
    drop(charge);
    let _other = budget.account(2);
    assert_eq!(lock(&budget.accounts).len(), 1);
}

#[test]
fn a_charge_grows_while_there_is_room_and_takes_others_over() {
    let account = budget(100, 1000).account(1);
    let (mut charge, other) = (account.take(40).expect("room"), account.take(10).expect("room"));
    assert!(charge.grow(50) && !charge.grow(1));
    assert_eq!((charge.bytes(), account.charged_bytes()), (90, 100));
    charge.join(other);
    assert_eq!((charge.bytes(), account.charged_bytes()), (100, 100));
    charge.shrink_to(30);
    assert_eq!((charge.bytes(), account.charged_bytes()), (30, 30));
    drop(charge);
    assert_eq!(account.charged_bytes(), 0);
}

#[test]
fn a_message_that_moves_exceeds_either_limit_by_so_much_and_no_more() {
    for (user_bytes, all_bytes) in [(100, 1000), (1000, 100)] {
        let account = budget(user_bytes, all_bytes).account(1);
        let _full = account.charge_anyway(100);
        assert!(account.take_moved(MOVED_BYTES_MAX + 1).is_none());
        let moved = account.take_moved(MOVED_BYTES_MAX).expect("room for a message that moves");
        assert_eq!(moved.bytes(), MOVED_BYTES_MAX);
        assert!(account.take_moved(1).is_none());
    }
}

#[test]
fn memory_that_others_can_do_without_leaves_half_of_the_limit() {
    let account = budget(100, 1000).account(1);
    assert!(account.take_spare(51).is_none());
    let spare = account.take_spare(50).expect("half");
    assert_eq!(spare.bytes(), 50);
    assert!(account.take_spare(1).is_none() && account.take(50).is_some());
}

#[test]
fn charges_that_reach_the_mark_notify_once() {
    let account = budget(usize::MAX, usize::MAX).account(1);
    let budget = Arc::clone(&account.budget);
    let mut much = pin!(budget.much_charged());
    let below = account.charge_anyway(MUCH_BYTES - 1);
    assert!(poll(much.as_mut()).is_pending());
    let reached = account.charge_anyway(1);
    assert!(poll(much).is_ready());
    let beyond = account.charge_anyway(MUCH_BYTES);
    let mut again = pin!(budget.much_charged());
    assert!(poll(again.as_mut()).is_pending(), "they are beyond it already");
    drop((below, reached, beyond));
    let _charge = account.charge_anyway(MUCH_BYTES);
    assert!(poll(again).is_ready());
}

#[test]
fn messages_that_had_to_wait_are_counted() {
    let account = budget(100, 1000).account(1);
    let all = account.take(100).expect("room");
    assert_eq!(account.waits(), 0);
    for count in 1..=2 {
        let mut waits = pin!(account.room(1));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(account.waits(), count);
    }
    drop(all);
}

#[test]
fn charges_exceed_the_limit_of_their_user_only_beyond_the_excess() {
    let account = budget(100, 50).account(1);
    let _charge = account.charge_anyway(110);
    assert!(account.exceeds_own_limit(9) && !account.exceeds_own_limit(10));
}
