"""The tools of coding agents, by what they are for, and how people ask for them."""

# role: names in four styles | other names | purpose | parameters. A parameter is slot:type:names
# it has here or there, "?" after the type makes it optional.
ROLES = {
    "read": ("read Read read_file readFile", "view ReadFile view_file cat open_file fs_read "
             "get_file read_text_file", "[Read|Reads|Returns|Get|Show] [a file|the contents of a "
             "file|the text of a file|file contents][ from disk| by its path|][.|]",
             "path:s offset:i? limit:i? pages:s? start_line:i? end_line:i? encoding:s? "
             "allow_large:b?"),
    "shell": ("bash Bash run_shell_command runCommand", "shell exec_command execute_command "
              "terminal local_shell Terminal run_terminal_cmd", "[Run|Runs|Execute|Executes] a "
              "[shell |bash |]command[ and return its output| in a terminal|][.|]",
              "command:s:command:command:cmd timeout:n? workdir:s? description:s? "
              "run_in_background:b? login:b?"),
    "write": ("write Write write_file writeFile", "create_file save_file Create WriteFile",
              "[Write|Writes|Save|Create] [a file|text to a file|content to a file][ on disk|][.|]",
              "path:s content:s:content:content:contents:text"),
    "edit": ("edit Edit edit_file replaceText", "str_replace search_replace replace apply_edit",
             "[Replace|Replaces|Change|Edit] [text in a file|a string in a file|part of a file]"
             "[.|]",
             "path:s old_string:s:old_string:old_str:old_text:search new_string:s:new_string:"
             "new_str:new_text:replacement replace_all:b?"),
    "list": ("ls LS list_files listFiles", "list_directory list_dir List", "[List|Lists|Show] "
             "[files|the files in a folder|a directory|directory entries][.|]",
             "path:s:path:directory:dirpath:dir ignore:l? recursive:b?"),
    "glob": ("glob Glob find_files findFiles", "file_search glob_search", "[Find|Finds|Match] "
             "files [by pattern|by a glob pattern|by their names][.|]",
             "pattern:s path:s? limit:i?"),
    "grep": ("grep Grep grep_search searchFiles", "search_files ripgrep search_file_content",
             "[Search|Searches|Look] [file contents|in files|for text in files][ by regex|][.|]",
             "pattern:s:pattern:query:regex path:s? include:s? glob:s? limit:i?"),
    "fetch": ("webfetch WebFetch web_fetch fetchUrl", "fetch Fetch read_url", "[Fetch|Fetches|"
              "Download|Get] [a web page|an address|the text of a page][.|]",
              "url:s format:s? timeout:n?"),
    "todo": ("todowrite TodoWrite todo_write updatePlan", "update_plan Checklist", "[Keep|Update|"
             "Write] [the list of tasks|a plan|a todo list][.|]", "todos:l:todos:items:plan"),
    "task": ("task Task agent spawnAgent", "Agent delegate dispatch_agent", "[Start|Launch|Give "
             "work to] [another agent|a helper agent|a sub-agent][.|]",
             "description:s prompt:s subagent_type:s? model:s?"),
    "skill": ("skill Skill use_skill loadSkill", "Skills", "[Load|Use|Run] a [named |]skill[.|]",
              "name:s:name:skill args:s?"),
    "ask": ("question AskQuestion ask_user askUser", "request_user_input", "[Ask|Asks] the user "
            "[a question|something][.|]", "question:s options:l?"),
    "notebook": ("notebookedit NotebookEdit notebook_edit editNotebook", "", "[Edit|Change] a "
                 "[cell of a |]notebook[.|]", "notebook_path:s cell_id:s? new_source:s"),
    "image": ("viewimage ViewImage view_image viewImage", "", "[Look at|Show|View] an image[.|]",
              "path:s"),
    "plan": ("plan ExitPlan plan_mode_respond planMode", "attempt_completion", "[Present|Show|End "
             "with] [the plan|a plan|the outcome][.|]", "response:s:response:result:plan"),
    "stdin": ("input WriteInput write_stdin sendInput", "", "[Write|Send] [characters|text] to a "
              "running [process|session][.|]", "session_id:n chars:s?"),
    "time": ("time Time llm_time getTime", "current_time get_current_time clock now", "[Returns|"
             "Return|Get|Tell] the [current |]time[ here| in all zones|][.|]", ""),
    "version": ("version Version llm_version getVersion", "about app_version", "[Returns|Return|"
                "Get|Tell] the [installed |]version[ of the program|][.|]", ""),
    "goal": ("goal Goal get_goal getGoal", "current_goal", "[Returns|Get|Show] the [current |]goal"
             "[ and its state|][.|]", ""),
    "agents": ("agents ListAgents list_agents listAgents", "", "[List|Lists|Show] [all |the |]"
               "[running |]agents[.|]", ""),
    "jobs": ("jobs CheckJobs check_jobs checkJobs", "CheckBackgroundJob", "[Check|List] [the |]"
             "background jobs[.|]", ""),
}  # fmt: skip
NOTHING = frozenset(("time", "version", "goal", "agents", "jobs"))

REQUESTS = {
    "read": (
        "[What is|What's|whats|What is written|What stands|What have we got] in [the file |]{p}"
        "[?|]",
        "What does [the file |file |]{p} [say|contain|hold|read][?|]",
        "[Read|Open|Show|Show me|Print|Display|View|Load|Output] [the file |the contents of |]{p}"
        "[.|, please.|]",
        "[Read|Open|Look at|Check|Take a look at|Look into|Inspect] [the file |]{p} and [tell|show]"
        " me what [it says|is in it|it contains|is written there|you find].",
        "[Tell me|Say|Give me|I need|Let me see|I want] the [content|contents|text|whole text] of "
        "[the file |]{p}[.|]",
        "[Can|Could|Would|Will] you [please |][read|open|show me|look at|check] [the file |]{p}"
        "[ for me|]?",
        "[I want to know|Tell me|Find out|I wonder|Say] what [the file |]{p} [says|contains|"
        "holds].",
        "[cat|less|type|head|more] {p}[ please|]",
        "[There is|I have|We have|You will find] a file [called |named |]{p}. [What does it say|"
        "What is in it|Read it|Tell me what it says|Please read it][?|.|]",
    ),
    "read_two": (
        "[Read|Open|Show me|Check|Look at] [the files |both |]{p} and {q}[.|]",
        "[What is|What's] in [the files |]{p} and [in |]{q}?",
        "[Tell me|Say|Find out] what {p} and {q} [say|contain|hold].",
    ),
    "shell": (
        "[Run|Execute|Please run|Start|Try] [the command |this command: |]`{c}`[.|]",
        "[Run|Execute|Call] {c} [in the shell|in the terminal|for me|on the command line][.|]",
        "[What does|What is printed by|What comes out of] `{c}`[ print|]?",
    ),
    "write": (
        '[Write|Save|Put|Store] "{t}" [to|into|in] [the file |a file called |]{p}[.|]',
        "[Create|Make|Write|Add] [a file|the file|a new file] {p} [with the content|with the text|"
        'that says|containing] "{t}"[.|]',
    ),
    "edit": (
        '[Replace|Change|Swap|Rewrite] "{a}" [with|by|to|into] "{b}" in [the file |]{p}[.|]',
        'In [the file |]{p}, [replace|change|turn|swap] "{a}" [with|by|to|into] "{b}"[.|]',
    ),
    "list": (
        "[List|Show|Show me|Print] [the files|all files|everything|what is] in [the folder |the "
        "directory |]{x}[.|]",
        "[What files|Which files|What things] are in [the folder |the directory |]{x}[?|]",
    ),
    "glob": (
        "[Find|List|Show|Look for] [all |the |][files|paths] [matching|like|that match|named] {x}"
        "[.|]",
        "Which [files|paths] [match|are like|fit] {x}[?|]",
    ),
    "grep": (
        '[Search|Look|Grep|Scan] [the files |the code |the project |]for "{x}"[.|]',
        '[Find|Show me|Tell me] where "{x}" [is used|occurs|is written|stands|appears][.|]',
    ),
    "fetch": (
        "[Fetch|Get|Download|Open|Load|Read] [the page |the address |]{x}[.|]",
        "[What is on|What does it say on|What stands on] {x}?",
    ),
    "time": (
        "[What time is it|Tell me the time|What is the time|How late is it|Give me the time|The "
        "time, please|Do you know the time|What does the clock say][ now| right now| here|][?|.|]",
    ),
    "version": (
        "[What|Which] version [is this|is it|is installed|do you run|are you|do we have|is running]"
        "[ here| now|]?",
        "[Tell me|Show|Show me|Print|Give me] [the|your] version[ number|][.|]",
    ),
    "goal": (
        "[What is|What's|Tell me|Show|Show me] [the|my|our|your] [current |][goal|aim][?|.|]",
        "[Do we have|Is there] a [current |]goal[ set|]?",
    ),
    "agents": (
        "[List|Show|Show me|Name] [all |the |][running |active |]agents[.|]",
        "[Which|What] agents [are there|are running|do we have|are active]?",
    ),
    "jobs": (
        "[Check|List|Show|Look at] [the |all |my |][background |running |]jobs[.|]",
        "[Which|What] jobs [are running|are there|do we have|are left]?",
    ),
}  # fmt: skip
