"""Everyday tools, and how people ask for them."""

# Tools that a vague request could mean alike, by their first names.
_KIN = (
    "switch_light set_brightness switch_device lock_door lock_bike", "add_to_cart order_food "
    "order_custom book_table", "book_flight find_train get_route rent_car",
    "set_timer set_alarm remind save_note",
    "send_email send_message call_contact find_contact", "search define get_news",
    "read_file write_file list_files delete_file run_command open_app",
    "add multiply convert_currency",
    "pick_up deliver get_order cancel_order",
)  # fmt: skip
KIN = {name: group.split()[0] for group in _KIN for name in group.split()}
# Those of which one request can mean two even when it is exact.
CLOSE = frozenset(("switch_light", "add_to_cart"))

# name variants | description | parameters | requests. A parameter is name:type:how its value is
# drawn, "?" after the type makes it optional; it is left out where the request does not name it.
TOOLS = (
    ("get_weather/weather/getWeather/current_weather", "[Get|Look up] the [current |]weather "
                                                       "[for|in|of] a city",
     "city:s:city", "[What is|What's|How is|Tell me] the weather [like |]in {city}?/Is it "
                    "[raining|sunny|"
     "cold|warm|windy] in {city}?/[Weather|Forecast] for {city}[, please|]/How [warm|cold] is it "
     "in {city}"
     "[ today| now|]?/Do I need [an umbrella|a coat] in {city}?"),
    ("get_weather/weather_report", "Get the weather", "location:s:city unit:e?:celsius,fahrenheit",
     "What is the weather in {location}[ in {unit}| ({unit})]?/[Temperature|Weather] in "
     "{location}, in {unit}"),
    ("get_time/current_time/clock", "[Get|Tell] the [current |]time in a city", "city:s:city",
     "What time is it in {city}?/[Tell me|Give me|I need] the time in {city}[.|]/How late is it "
     "in {city}?"),
    ("get_stock_price/stock_price/quote", "Get the price of a stock", "symbol:s:ticker",
     "[What is|What's] the [stock |share |]price of {symbol}?/How much is {symbol} [stock|a "
     "share] [now|"
     "today]?/[Look up|Check] the {symbol} stock"),
    ("search/web_search/search_web", "Search the web", "query:s:phrase",
     "[Search|Google|Look up|Search the web for|Find pages about|Search for] {query}/[What does "
     "the web "
     "say|Find something] about {query}?"),
    ("send_email/email/mail", "Send an [email|e-mail]", "to:s:email subject:s:phrase",
     "[Send an email|Write an email|Email] to {to} [with the subject|about|with subject] "
     "{subject}"),
    ("send_message/message/text", "Send a [text |]message to [a person|"
                                  "someone]", "to:s:name text:s:phrase",
     "[Send|Write] a message to {to}: {text}/[Text|Tell|Message] {to}: {text}/Let {to} know: "
     "{text}"),
    ("set_timer/timer/start_timer", "[Set|Start] a timer", "minutes:i:small",
     "[Set|Start] a timer for {minutes} minutes/[Wake me|Remind me|Ring] in {minutes} "
     "minutes/{minutes} "
     "minute timer, please"),
    ("set_alarm/alarm", "Set an alarm", "time:s:time", "[Set an alarm|Wake me|Wake me up] [for|"
                                                       "at] {time}"),
    ("add/add_numbers/sum", "Add two numbers", "a:n:num b:n:num",
     "[Add|Sum] {a} and {b}/[What is|Compute] {a} + {b}?/[Use the tool to add|"
     "Please add|With the tool, add|By tool: add] {a} [to|and] {b}"),
    ("multiply/product", "Multiply two numbers", "a:n:num b:n:num",
     "[Multiply|Use the tool to multiply|With the tool, multiply] {a} "
     "[by|and|with] {b}/What is {a} times {b}?/[Compute|Calculate] {a} * {b}"),
    ("translate/translate_text", "Translate text [into another language|]",
     "text:s:phrase language:s:language",
     "[Translate|Please translate] \"{text}\" [to|into] {language}/How do you say \"{text}\" in "
     "{language}?"),
    ("get_user/find_user/lookup_user", "[Get|Find] a user by id", "id:i:id",
     "[Get|Find|Look up|Show] [the |]user [with |][id |number |]{id}/Who is user {id}?"),
    ("read_file/open_file/cat", "Read a file", "path:s:path",
     "[Read|Open|Show|Print] [the file |]{path}/What is in [the file |]{path}?/Show me {path}"),
    ("write_file/save_file/create_file", "Write text to a file", "path:s:path content:s:phrase",
     "[Write|Save|Put] \"{content}\" [to|into|in] [the file |]{path}"),
    ("list_files/ls/list_directory", "List the files in a [folder|directory]", "path:s:folder",
     "[List|Show] [the |all |]files in {path}/What files are in {path}?/What is in the folder "
     "{path}?"),
    ("delete_file/remove_file", "Delete a file", "path:s:path",
     "[Delete|Remove|Erase] [the file |]{path}/Get rid of [the file |]{path}"),
    ("run_command/bash/shell", "Run a shell command", "command:s:command",
     "[Run|Execute] [the command |]`{command}`/[Run|Execute] {command} [in the shell|in the "
     "terminal]"),
    ("play_music/play_song", "Play [a song|music]", "title:s:phrase",
     "[Play|Put on|I want to hear] [the song |]{title}"),
    ("switch_light/set_light/light", "Switch a light on or off", "room:s:room on:b:on",
     "[Turn|Switch] {on} the light in the {room}/[Turn|Switch] the {room} light {on}/{room} "
     "light {on}, please"),
    ("set_temperature/thermostat", "Set the temperature of a room", "room:s:room degrees:n:num",
     "[Set|Change|Heat] the {room} to {degrees} degrees/Make it {degrees} degrees in the {room}"),
    ("book_table/reserve_table", "Book a table [in|at] a "
                                 "restaurant", "restaurant:s:name people:i:small",
     "[Book|Reserve] a table [for {people}|for {people} people] at {restaurant}/I want to eat at "
     "{restaurant}"
     " with {people} people"),
    ("book_flight/find_flight/flights", "[Find|Book] a flight", "origin:s:city destination:s:city",
     "[Book|Find|Get me] a flight from {origin} to {destination}/[I want|I need] to fly from "
     "{origin} to "
     "{destination}"),
    ("convert_currency/exchange", "Convert money [between currencies|]",
     "amount:n:num source:s:currency target:s:currency",
     "[Convert|Change] {amount} {source} [to|into] {target}/How much is {amount} {source} in "
     "{target}?"),
    ("get_news/news", "Get the news about a topic", "topic:s:noun",
     "[What is the news|Any news|Show me the news] [about|on] {topic}[?|]/[Read me|Get] the "
     "{topic} news"),
    ("create_ticket/open_ticket/new_issue", "Create a [support |]ticket",
     "title:s:phrase priority:e:low,medium,high",
     "[Create|Open|File] a {priority} priority ticket [titled|called|about] {title}"),
    ("get_order/order_status/track_order", "Get the status of an order", "order_id:i:id",
     "[Where is|What is the status of|Track|Check] [my |]order {order_id}[?|]/Has order "
     "{order_id} been sent?"),
    ("roll_dice/roll", "Roll a die", "sides:i:small", "[Roll|Throw] a [die|dice] with {sides} "
                                                      "sides"),
    ("define/get_definition/dictionary", "[Define a word|Look up what a word means]", "word:s:word",
     "[Define|Look up the word] {word}/What does {word} mean?/What is the [meaning|definition] "
     "of {word}?"),
    ("remind/create_reminder/add_reminder", "Create a reminder", "text:s:phrase minutes:i:small",
     "Remind me in {minutes} minutes to {text}/[Set|Make|Create] a reminder: {text}, in "
     "{minutes} minutes"),
    ("get_route/directions/navigate", "Get directions [between two places|"
                                      "]", "start:s:city end:s:city",
     "[How do I get|Show me the way|Directions|Route] from {start} to {end}[?|]"),
    ("set_volume/volume", "Set the volume", "level:i:percent",
     "[Set|Turn|Change] the volume to {level}/[Volume|Loudness] {level}, please"),
    ("lock_door/door", "Lock or unlock a door", "door:s:room locked:b:lock",
     "{locked} the {door} door/Please {locked} the door of the {door}"),
    ("get_balance/balance", "Get the balance of an account", "account:s:code",
     "[What is|Show|Check] the balance of [the |]account {account}[?|]/How much money is on "
     "account {account}?"),
    ("add_to_cart/buy/order_item", "[Order|Buy] [something|an "
                                   "item]", "item:s:noun quantity:i:small",
     "[Order|Buy|Get me] {quantity} [of|pieces of|times|x] {item}/[Put|Add] {quantity} {item} "
     "[in|to] the cart"),
    ("order_food/food/order_dish", "[Order food|Order a dish|Order something to eat]",
     "dish:s:noun quantity:i:small",
     "[I'd like|I'd love|I want|Order|Bring me|We need] {quantity} [portions of |plates of |x |"
     "]{dish}/"
     "[Can I have|Could I get] {quantity} {dish}?"),
    ("find_train/train_times/train", "[Find|Look up] [a train|train connections]",
     "origin:s:city destination:s:city",
     "[I have to get|I need to go|I want to travel|How do I get] from {origin} to {destination} "
     "by train/"
     "[When is the next train|Is there a train|Trains] from {origin} to {destination}[?|]"),
    ("find_hotel/hotels/book_hotel", "[Find|Book] a hotel", "city:s:city nights:i:small",
     "[I need|Find|Book] a [hotel|room] in {city} for {nights} nights/[Where can I sleep|I want "
     "to stay] "
     "in {city} for {nights} nights"),
    ("save_note/note/remember", "[Save|Store|Keep] a note", "text:s:phrase",
     "[Note|Write down|Remember|Save|Note this down|Keep in mind]: {text}/[Make|Take] a note: "
     "{text}/"
     "[Please |]note that {text}"),
    ("call_contact/phone/dial", "Call a [person|contact]", "name:s:name",
     "[Call|Phone|Ring|Dial] {name}[ for me|]/I [want|need|have] to [talk|speak] to {name} [on "
     "the phone|"
     "by phone]"),
    ("set_brightness/dim", "Set the brightness of a lamp", "lamp:s:room level:i:percent",
     "[Dim|Set|Change] the {lamp} lamp to {level}[ percent|]"),
    ("switch_device/toggle/power", "Turn a device on or off", "device:s:noun on:b:on",
     "[Turn|Switch] [the |my |]{device} {on}/[Could|Can] you [turn|switch] {on} the {device}?/"
     "[Please |]power the {device} {on}"),
    ("order_custom/order", "Order something with a choice of kind", "kind:s:noun count:i:small",
     "[I'd love|I'd like|Give me|I want] {count} with {kind}/{count} with {kind}, please"),
    ("pick_up/courier/request_pickup", "[Pick up|Collect] a parcel at an address",
     "address:s:street parcels:i:small",
     "[Pick up|Collect|Fetch] {parcels} [parcels|boxes|packages] [at|from] {address}/[There are|I "
     "have] {parcels} parcels [at|waiting at] {address}"),
    ("deliver/ship/send_package", "Deliver something to an address", "item:s:noun address:s:street",
     "[Deliver|Bring|Ship] the {item} to {address}/The {item} [goes|must go|has to go] to "
     "{address}"),
    ("pay_bill/pay/transfer", "Pay [an amount of money|money] to someone",
     "to:s:names amount:n:num",
     "[Pay|Transfer|Wire] {amount} to {to}/[Pay] {to} {amount}/I owe {to} {amount}[, pay it|]"),
    ("water_plants/irrigate", "Water the plants in a place", "place:s:room minutes:i:small",
     "[Water|Irrigate] the {place} for {minutes} minutes/The [plants|flowers] in the {place} need "
     "water for {minutes} minutes"),
    ("clean_room/vacuum/start_vacuum", "Let the robot clean a room", "room:s:room deep:b:true",
     "[Clean|Vacuum] the {room}, deep {deep}/[Clean|Vacuum] the {room} with deep set to {deep}"),
    ("rent_car/car_rental", "Rent a car", "city:s:city days:i:small",
     "[Rent|Find|Get me] a car in {city} for {days} days/I need a car [in|for] {city} for {days} "
     "days"),
    ("open_app/launch/start_app", "[Open|Launch|Start] an app", "app:s:word",
     "[Open|Launch|Start] [the app |]{app}/[Open|Launch] {app} on my phone"),
    ("join_meeting/join_call", "Join a video call", "code:s:code",
     "[Join|Enter|Open] the [meeting|call] {code}/Get me into [meeting|call] {code}"),
    ("find_contact/address_book", "Look up someone's phone number", "person:s:names",
     "[Find|Look up|Get] the phone number of {person}/[What is|What's] {person}'s phone number?/"
     "How can I reach {person}?"),
    ("move_robot/drive_robot", "Move the robot",
     "direction:e:forward,back,left,right steps:i:small",
     "[Move|Drive] [the robot |]{direction} by {steps} steps/{steps} steps {direction}[, please|]"),
    ("cancel_order/cancel_booking", "Cancel a booking", "booking:s:code",
     "[Cancel|Drop] [the |my |]booking {booking}/I do not need booking {booking} any more"),
    ("lock_bike/unlock_bike/bike", "Lock or unlock a bike", "bike:i:id locked:b:lock",
     "[Please |]{locked} bike {bike}/{locked} the bike with number {bike}"),
    ("add_tags/tag", "Add tags to a note", "note:s:word tags:l:words",
     "[Tag|Label] the note {note} [with|as] {tags}/Add the tags {tags} to the note {note}"),
)  # fmt: skip
